"""Builds Catamount's recurrent networks: two language models, translation, and speech.

Catamount is Baidu's library of symbolic training cost. `WordLM`, `CharLM`, `Translator` and `Speech` take tokens or
sound and return logits. `workloads/sequences.py` makes the workloads wordlm, charlm, nmt and speech of them. Each layer
of an LSTM has one bias here, as in TensorFlow. PyTorch's LSTM adds a second one. A layer over a whole sequence (`LSTM`)
keeps PyTorch's operator, and gives it zeros as the second bias. A cell (`LSTMCell`) is one step of a loop: one product
of input and state together, then the gates. A word or letter is predicted at every step. The language models have no
dropout.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import nn
from torch.nn import functional

from workloads.catalogue.base import Batch, draw, next_tokens

State = tuple[torch.Tensor, torch.Tensor]
"""(output, memory) of a cell, each batch × hidden."""


class LSTM(nn.LSTM):
    """nn.LSTM whose second bias of each layer and direction is a buffer of zeros: not trained and no parameter."""

    def __init__(self, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, **options)
        for name in [name for name in self._parameters if name.startswith("bias_hh")]:
            zeros = torch.zeros_like(self._parameters.pop(name), requires_grad=False)  # type: ignore[arg-type]
            self.register_buffer(name, zeros, persistent=False)
        self._init_flat_weights()  # rebuilds the list of weights that PyTorch's operator takes


class LSTMCell(nn.Module):
    """One step of an LSTM: weight of 4·hidden × (inputs + hidden), one bias; 1 is added to the forget gate.

    noise: deviation of the normal noise that is added to the weight at each step in training; 0: none is drawn.
    """

    def __init__(self, inputs: int, hidden: int, noise: float = 0.0) -> None:
        super().__init__()
        self.hidden, self.noise = hidden, noise
        self.gates = nn.Linear(inputs + hidden, 4 * hidden)

    def forward(self, inputs: torch.Tensor, state: State) -> State:
        weight = self.gates.weight
        if self.noise and self.training:
            weight = weight + self.noise * torch.randn_like(weight)
        gates = nn.functional.linear(torch.cat([inputs, state[0]], dim=1), weight, self.gates.bias)
        entered, new, forget, shown = gates.chunk(4, dim=1)
        memory = state[1] * (forget + 1.0).sigmoid() + entered.sigmoid() * new.tanh()
        return memory.tanh() * shown.sigmoid(), memory

    def zeros(self, like: torch.Tensor) -> State:
        """Return the state before the first step. like: a tensor whose first dimension is the batch."""
        empty = like.new_zeros(like.shape[0], self.hidden)
        return empty, empty


CARRIED = -2.0
"""Initial bias of the transform gates, with which a highway network begins by carrying on most of its state."""


class WordLM(nn.Module):
    """Embedding, LSTM layers with one bias each, softmax layer: batch × seq tokens → batch × seq × vocab logits.

    With hidden h, vocabulary v and L layers it has 8Lh² + 2hv + 4Lh + v parameters. Source: Jozefowicz et al. 2016,
    arXiv:1602.02410.
    """

    def __init__(self, hidden: int, vocab: int, layers: int, **_sizes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.lstm = LSTM(hidden, hidden, layers, batch_first=True)
        self.softmax = nn.Linear(hidden, vocab)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        return cast(torch.Tensor, self.softmax(states))


class Highway(nn.Module):
    """A sublayer: state s → (H − s)·T + s, where H is tanh and T sigmoid of a linear layer of `seen`."""

    def __init__(self, seen: int, hidden: int) -> None:
        super().__init__()
        self.candidate = nn.Linear(seen, hidden)
        self.transform = nn.Linear(seen, hidden)
        nn.init.constant_(self.transform.bias, CARRIED)

    def forward(self, seen: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        candidate, transform = self.candidate(seen).tanh(), self.transform(seen).sigmoid()
        return cast(torch.Tensor, (candidate - state) * transform + state)


class CharLM(nn.Module):
    """A recurrent highway network over letters: one layer of `depth` highway sublayers per step; the first sees the
    letter, too.

    With hidden h, vocabulary v and depth D it has (2D + 2)h² + 2hv + 2Dh + v parameters. Source: Zilly et al. 2016,
    arXiv:1607.03474.
    """

    def __init__(self, hidden: int, vocab: int, depth: int, **_sizes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.first = Highway(2 * hidden, hidden)
        self.deeper = nn.ModuleList(Highway(hidden, hidden) for _ in range(depth - 1))
        self.softmax = nn.Linear(hidden, vocab)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded = self.embedding(tokens)
        state = torch.zeros_like(embedded[:, 0])
        states = []
        for letter in embedded.unbind(1):
            state = self.first(torch.cat([letter, state], dim=1), state)
            for sublayer in self.deeper:
                state = sublayer(state, state)
            states.append(state)
        return cast(torch.Tensor, self.softmax(torch.stack(states, dim=1)))


DROPPED = 0.2
"""Dropout of the inputs of `Translator`'s encoder and decoder."""


class Attention(nn.Module):
    """Luong's attention in its general form. Keys are a product with the memory, computed once; the scores of a step
    are products with the keys."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.keys = nn.Linear(2 * hidden, hidden, bias=False)
        self.layer = nn.Linear(3 * hidden, hidden, bias=False)

    def forward(self, query: torch.Tensor, keys: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """Attend. query: batch × hidden; keys: batch × seq × hidden; memory: batch × seq × 2·hidden."""
        weights = torch.bmm(keys, query.unsqueeze(2)).squeeze(2).softmax(dim=1)
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
        return cast(torch.Tensor, self.layer(torch.cat([query, context], dim=1)))


class Translator(nn.Module):
    """Source words, target words (batch × seq each) → logits of the target's next words, batch × seq × vocab.

    An LSTM in both directions, and one that attends to it (Luong et al. 2015), with 33h² + 3hv + 12h parameters. The
    decoder is fed its last attention with the word (input feeding), so that its steps are a loop. Sizes are those of
    TensorFlow's tutorial: one encoder layer of two directions, one decoder layer, dropout of both inputs, scores that
    are plain products, an attention without tanh. Source and target are equally long, and nothing is masked.
    """

    def __init__(self, hidden: int, vocab: int, **_sizes: int) -> None:
        super().__init__()
        self.source = nn.Embedding(vocab, hidden)
        self.target = nn.Embedding(vocab, hidden)
        self.encoder = LSTM(hidden, hidden, 1, batch_first=True, bidirectional=True)
        self.decoder = LSTMCell(2 * hidden, hidden)
        self.attention = Attention(hidden)
        self.projection = nn.Linear(hidden, vocab, bias=False)
        self.dropout = nn.Dropout(DROPPED)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory, (outputs, cells) = self.encoder(self.dropout(self.source(source)))
        state = outputs[1], cells[1]  # of the backward direction, which ends at the first word
        keys = self.attention.keys(memory)
        attended = torch.zeros_like(state[0])
        every = []
        for word in self.target(target).unbind(1):
            state = self.decoder(self.dropout(torch.cat([word, attended], dim=1)), state)
            attended = self.attention(state[0], keys, memory)
            every.append(attended)
        return cast(torch.Tensor, self.projection(torch.stack(every, dim=1)))


def translation_batch(
    hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    """Draw inputs: size × seq source words, as many target words; target: the word after each of these."""
    source = draw((size, hyper["seq"]), hyper["vocab"], device, generator)
    translated = next_tokens(hyper, size, device, generator)
    return Batch((source, *translated.inputs), translated.target)


NOISE = 0.01
"""Deviation of the noise on the weights of the decoder's cells."""

OWN_LETTERS = 0.1
"""Share of letters that the decoder reads from its own predictions."""


class Encoder(nn.Module):
    """batch × frames × audio → batch × frames / 4 × 2·hidden.

    It normalises sound by stored means and deviations (buffers, no parameters), and halves the time after each of its
    first two layers: it keeps the largest of two steps, and drops the last of an odd number.
    """

    means: torch.Tensor
    deviations: torch.Tensor

    def __init__(self, hidden: int, audio: int) -> None:
        super().__init__()
        self.register_buffer("means", torch.zeros(audio))
        self.register_buffer("deviations", torch.ones(audio))
        inputs = (audio, 2 * hidden, 2 * hidden)
        self.layers = nn.ModuleList(LSTM(width, hidden, 1, batch_first=True, bidirectional=True) for width in inputs)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        first, second, third = self.layers
        hidden, _ = first((sound - self.means) / self.deviations)
        hidden, _ = second(_halved(hidden))
        return cast(torch.Tensor, third(_halved(hidden))[0])


class HybridAttention(nn.Module):
    """Weights over the encoder's steps: softmax of w·tanh(V·encoded + W·state + U∗(Q∗last weights) + b).

    Scores depend on the encoder's outputs, the attention cell's state, and a convolution of the last step's weights.
    They are sums of elementwise products.
    """

    def __init__(self, encoded: int, state: int, keys: int, conv_width: int, filters: int) -> None:
        super().__init__()
        self.keys = nn.Linear(encoded, keys)
        self.state = nn.Linear(state, keys, bias=False)
        self.seen = nn.Conv1d(1, filters, conv_width, bias=False)
        self.mixed = nn.Conv1d(filters, keys, 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(keys))
        self.weights = nn.Parameter(torch.empty(keys))
        nn.init.normal_(self.weights, std=keys**-0.5)
        self.margins = ((conv_width - 1) // 2, conv_width // 2)

    def forward(self, keys: torch.Tensor, state: State, last: torch.Tensor) -> torch.Tensor:
        """Attend. keys: batch × steps × keys; last: batch × steps."""
        query = self.state(torch.cat([state[1], state[0]], dim=1)).unsqueeze(1)
        location = self.mixed(self.seen(functional.pad(last.unsqueeze(1), self.margins)))
        scores = (self.weights * (keys + query + location.transpose(1, 2) + self.bias).tanh()).sum(dim=2)
        return cast(torch.Tensor, scores.softmax(dim=1))


class Speech(nn.Module):
    """Sound, and the letter before each: batch × steps → logits, batch × steps × vocab.

    Three LSTM layers in both directions (`Encoder`), hybrid attention, and a decoder that writes one letter for each of
    the encoder's remaining steps. In training the decoder adds fresh noise to its cells' weights, and one letter in ten
    that it reads is drawn from its own prediction. Source: Battenberg et al. 2017, arXiv:1707.07413, sizes as in
    Hestness et al. 2019.
    """

    letters: torch.Tensor

    def __init__(
        self, hidden: int, attention_hidden: int, decoder_hidden: int, keys: int, vocab: int, audio: int,
        conv_width: int, filters: int, **_sizes: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.register_buffer("letters", torch.eye(vocab))
        self.encoder = Encoder(hidden, audio)
        self.attention_cell = LSTMCell(vocab + 2 * hidden, attention_hidden, NOISE)
        self.attention = HybridAttention(2 * hidden, 2 * attention_hidden, keys, conv_width, filters)
        self.decoder_cell = LSTMCell(attention_hidden + 2 * hidden, decoder_hidden, NOISE)
        self.output = nn.Linear(decoder_hidden, vocab)

    def forward(self, sound: torch.Tensor, letters: torch.Tensor) -> torch.Tensor:
        encoded = self.encoder(sound)
        keys = self.attention.keys(encoded)
        attention_state, decoder_state = self.attention_cell.zeros(encoded), self.decoder_cell.zeros(encoded)
        weights, context = torch.zeros_like(encoded[:, :, 0]), torch.zeros_like(encoded[:, 0])
        written: list[torch.Tensor] = []
        for letter in letters.unbind(1):
            read = functional.embedding(self._read(letter, written), self.letters)
            attention_state = self.attention_cell(torch.cat([read, context], dim=1), attention_state)
            weights = self.attention(keys, attention_state, weights)
            context = (weights.unsqueeze(2) * encoded).sum(dim=1)
            decoder_state = self.decoder_cell(torch.cat([attention_state[0], context], dim=1), decoder_state)
            written.append(self.output(decoder_state[0]))
        return torch.stack(written, dim=1)

    def _read(self, letter: torch.Tensor, written: list[torch.Tensor]) -> torch.Tensor:
        """Return the given letters; in training, some are replaced by draws from the step before's predictions."""
        if not self.training or not written:
            return letter
        own = torch.multinomial(written[-1].detach().float().softmax(dim=1), 1).squeeze(1)
        return torch.where(torch.rand(letter.shape, device=letter.device) < OWN_LETTERS, own, letter)


def _halved(sequence: torch.Tensor) -> torch.Tensor:
    """Return half as many steps, each the maximum of two."""
    return functional.max_pool1d(sequence.transpose(1, 2), 2).transpose(1, 2)


def steps(hyper: Mapping[str, int]) -> int:
    """Return the number of the encoder's output steps, which is also that of the decoder's letters."""
    return hyper["frames"] // 2 // 2


def speech_batch(hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None) -> Batch:
    """Draw inputs: normal noise, size × frames × audio, and size × steps letters; target: the letter after each."""
    sound = torch.randn(size, hyper["frames"], hyper["audio"], device=device, generator=generator)
    letters = draw((size, steps(hyper) + 1), hyper["vocab"], device, generator)
    return Batch((sound, letters[:, :-1].clone()), letters[:, 1:].clone())
