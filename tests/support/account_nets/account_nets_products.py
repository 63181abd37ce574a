"""Small networks for accounts: recurrent layers, attention, matrix products and contractions."""

import einops
import torch
import torch.nn.functional as F
from torch import nn

from tests.support.account_nets.account_nets_layers import Lambda


def _recurrent(module, sequence):
    swapped = sequence.transpose(0, 1)
    found = [module.lstm(sequence)[0], module.gru(sequence)[0], module.rnn(sequence)[0]]
    found += [module.steps_first(swapped)[0], module.bare(sequence)[0], module.gru_both(sequence)[0]]
    found += [module.lstm_cell(sequence[:, 0])[0], module.gru_cell(sequence[:, 1]), module.rnn_cell(sequence[:, 2])]
    return found


def recurrent():
    return Lambda(
        _recurrent,
        lstm=nn.LSTM(12, 6, num_layers=2, bidirectional=True, batch_first=True),
        gru=nn.GRU(12, 5, batch_first=True),
        rnn=nn.RNN(12, 4, num_layers=2, batch_first=True),
        steps_first=nn.LSTM(12, 6),
        bare=nn.LSTM(12, 3, bias=False, batch_first=True),
        gru_both=nn.GRU(12, 5, num_layers=2, bidirectional=True, batch_first=True),
        lstm_cell=nn.LSTMCell(12, 7),
        gru_cell=nn.GRUCell(12, 9, bias=False),
        rnn_cell=nn.RNNCell(12, 8),
    )


def projected():
    """An LSTM whose state is projected from 6 to 4."""
    return Lambda(lambda m, s: m.lstm(s)[0], lstm=nn.LSTM(12, 6, proj_size=4, num_layers=2, batch_first=True))


def attention():
    return Lambda(
        lambda m, t: m.inner(t, t, t, need_weights=False)[0], inner=nn.MultiheadAttention(12, 3, batch_first=True)
    )


def attention_with_weights():
    return Lambda(lambda m, t: m.inner(t, t, t), inner=nn.MultiheadAttention(12, 3, bias=False, batch_first=True))


def attention_steps_first():
    return Lambda(lambda m, t: m.inner(t, t, t, need_weights=False)[0], inner=nn.MultiheadAttention(12, 2))


def _cross(module, tokens):
    memory = module.down(tokens)
    return module.inner(tokens, memory[:, :3], memory[:, :3], need_weights=False)[0]


def cross_attention():
    inner = nn.MultiheadAttention(12, 3, kdim=7, vdim=7, batch_first=True)
    return Lambda(_cross, down=nn.Linear(12, 7), inner=inner)


def encoder():
    layer = nn.TransformerEncoderLayer(12, 2, 20, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def _transformer(module, tokens):
    return module.inner(tokens, tokens[:, :3])


def transformer():
    return Lambda(_transformer, inner=nn.Transformer(12, 2, 1, 1, 20, batch_first=True))


def _sdpa(module, tokens):
    q, k, v = (part(tokens).unflatten(2, (2, 4)).transpose(1, 2) for part in (module.q, module.k, module.v))
    mask = torch.ones(5, 5, dtype=torch.bool)
    found = [F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=True)]
    found += [
        F.scaled_dot_product_attention(q, k[:, :, :3], v[:, :, :3]),
        F.scaled_dot_product_attention(q, k, v, mask),
    ]
    return found


def fused_attention():
    return Lambda(_sdpa, q=nn.Linear(12, 8), k=nn.Linear(12, 8), v=nn.Linear(12, 8))


def _products(module, tokens):
    a = module.linear(tokens)
    b = a.transpose(1, 2)
    found = [a @ b, torch.matmul(a, b), a.matmul(b), torch.bmm(a, b), a.bmm(b), a[0] @ b[0], torch.mm(a[0], b[0])]
    found += [a[0].mm(b[0]), torch.addmm(a[0] @ b[0], a[0], b[0]), (a[0] @ b[0]).addmm(a[0], b[0])]
    found += [torch.baddbmm(a @ b, a, b), torch.addmm(torch.zeros(5), a[0], b[0], beta=0), a @ module.weight]
    found += [(a @ b).baddbmm(a, b), a.new_ones(2, 4) @ module.weight.new_ones(4, 3) @ module.weight[:3]]
    return found


def products():
    return Lambda(_products, linear=nn.Linear(12, 7), weight=nn.Parameter(torch.ones(7, 3)))


def _broadcast(module, tokens):
    a = module.linear(tokens)
    return [module.weight @ a.transpose(1, 2), torch.matmul(module.weight, a.transpose(1, 2)), module.weight.matmul(
        a.transpose(1, 2))]  # fmt: skip


def broadcast():
    return Lambda(_broadcast, linear=nn.Linear(12, 7), weight=nn.Parameter(torch.ones(4, 7)))


def _vectors(module, tokens):
    a = module.linear(tokens)
    v = module.weight
    return [a @ v, torch.matmul(a, v), a[0] @ v, torch.mv(a[0], v), a[0].mv(v), torch.dot(a[0, 0], v), a[0, 0] @ v, (
        v @ a.transpose(1, 2))]  # fmt: skip


def vectors():
    return Lambda(_vectors, linear=nn.Linear(12, 7), weight=nn.Parameter(torch.ones(7)))


def _contractions(module, tokens):
    a = module.linear(tokens)
    found = [torch.einsum("bij,bkj->bik", a, a), torch.einsum("bij, bkj -> bik", a, a)]
    found += [torch.einsum("b i j, j k -> b i k", a, module.weight), torch.einsum("bij,bjk->bik", a, a.mT)]
    found += [torch.einsum("bhid,bhjd->bhij", module.wide, module.wide)]
    found += [torch.einsum("bij->bj", a), torch.einsum("bij,bij->b", a, a)]
    return found


def contractions():
    return Lambda(
        _contractions,
        linear=nn.Linear(12, 7),
        weight=nn.Parameter(torch.ones(7, 3)),
        wide=nn.Parameter(torch.ones(3, 7, 11, 13)),
    )


def _other_products(module, tokens):
    a = module.linear(tokens)
    found = [torch.cdist(a, a), torch.tensordot(a, module.weight, 1), torch.outer(a[0, 0], a[0, 1])]
    found += [torch.inner(a, a[0]), torch.linalg.multi_dot([a[0], module.weight, module.weight.T])]
    return found


def other_products():
    return Lambda(_other_products, linear=nn.Linear(12, 7), weight=nn.Parameter(torch.ones(7, 3)))


def _packed(module, sequence):
    lengths = torch.tensor([5, 3][: len(sequence)])
    rows = nn.utils.rnn.pack_padded_sequence(sequence, lengths, batch_first=True)
    return module.lstm(rows)[0].data


def packed():
    """Sequences of 5 and of 3 steps."""
    return Lambda(_packed, lstm=nn.LSTM(12, 6, batch_first=True))


def _einops(module, tokens):
    value = module.linear(tokens)
    return einops.einsum(value, module.weight, "b i j, j k -> b i k")


def einops_contraction():
    return Lambda(_einops, linear=nn.Linear(12, 7), weight=nn.Parameter(torch.ones(7, 3)))


def _in_place(module, tokens):
    value = module.linear(tokens)
    value = value.clone().add_(1).mul_(module.linear(tokens))
    value = torch.addbmm(value[0] @ module.weight @ module.weight.mT, value, module.square.expand(len(value), 7, 7))
    return value.sub(1) + torch.sub(value, 2) - torch.rsub(value, 1) + torch.addcmul(value, value, value)


def in_place():
    parts = {"weight": nn.Parameter(torch.ones(7, 3)), "square": nn.Parameter(torch.ones(7, 7))}
    parts["square"] = nn.Parameter(torch.ones(1, 7, 7))
    return Lambda(_in_place, linear=nn.Linear(12, 7), **parts)


def bilinear():
    """x1ᵀ W x2, which calls products of matrices inside of one operator."""
    return Lambda(lambda m, t: m.inner(t, m.other(t)), inner=nn.Bilinear(12, 7, 3), other=nn.Linear(12, 7))
