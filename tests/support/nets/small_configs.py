"""transformers' configurations of a few thousand weights each, by model type: two layers of width 32 or so."""

TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 99,
    "pad_token_id": 0,
}
GROUPED = {**TEXT, "num_key_value_heads": 2}
IMAGE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
BOTH_WAYS = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": 99,
    "pad_token_id": 0,
}
SOUND = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "conv_dim": [16] * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}

CONFIGS = {
    "bert": {**TEXT, "architectures": ["BertForMaskedLM"]},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 99},
    "electra": {**TEXT, "embedding_size": 16},
    "deberta-v2": TEXT,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "architectures": ["GPT2LMHeadModel"]},
    "llama": {**GROUPED, "architectures": ["LlamaForCausalLM"]},
    "mistral": GROUPED,
    "qwen2": GROUPED,
    "phi": GROUPED,
    "gpt_neox": TEXT,
    "opt": {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "mixtral": {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2, "architectures": ["MixtralForCausalLM"]},
    "mamba": {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99, "state_size": 4},
    "t5": {
        "d_model": 32,
        "d_ff": 64,
        "d_kv": 8,
        "num_layers": 2,
        "num_heads": 4,
        "vocab_size": 99,
        "architectures": ["T5ForConditionalGeneration"],
    },
    "bart": BOTH_WAYS,
    "vit": {**IMAGE, "architectures": ["ViTForImageClassification"]},
    "swin": {
        "image_size": 32,
        "patch_size": 4,
        "embed_dim": 16,
        "depths": [1, 1],
        "num_heads": [2, 2],
        "window_size": 4,
    },
    "videomae": {**IMAGE, "num_frames": 4},
    "wav2vec2": SOUND,
    "whisper": {
        **BOTH_WAYS,
        "max_source_positions": 50,
        "max_target_positions": 16,
        "architectures": ["WhisperForConditionalGeneration"],
    },
    "clip": {"text_config": {**TEXT, "max_position_embeddings": 16}, "vision_config": IMAGE, "projection_dim": 16},
}
