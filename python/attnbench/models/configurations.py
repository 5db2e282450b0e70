"""Small models with random weights, built from the classes of transformers.

Each has the proportions of a released model: the hidden size, the number of heads and the width of the
MLP are those of the released model divided by `scale`, and the kinds of layers have the same order. The
head dimensions of linear attention, the width of convolutions, the windows and the size of Mamba's state
are those of the released model, because the operators depend on them. Vocabularies and the numbers of
layers and experts are smaller. Nothing is downloaded.
"""

import importlib
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Configuration:
    """A model.

    Attributes:
        name: its name in commands and records.
        shaped_like: the released model whose proportions it has.
        scale: the divisor of the released model's widths.
        module: the module of transformers.models that defines it, such as "qwen3_5".
        classes: the names of its configuration class and of its model class.
        settings: the keyword arguments of the configuration class.
        tiny_settings: the keyword arguments that differ in `tiny()`.
        operator: the operator that most of its layers call, by its name in the reports of `accelerate`.
        attention: the attention implementation that the model uses when it is accelerated; None for its
            default.
    """

    name: str
    shaped_like: str
    scale: int
    module: str
    classes: tuple[str, str]
    settings: dict[str, Any]
    operator: str
    tiny_settings: dict[str, Any] = field(default_factory=dict)
    attention: str | None = None

    def tiny(self) -> "Configuration":
        """A model with the same kinds of layers, small enough that a step takes a fraction of a second."""
        return replace(self, settings=self.settings | self.tiny_settings)

    def build(self, seed: int = 0) -> Any:
        """The model in float32, with weights drawn from the seed, in training mode. Imports transformers
        and torch, and seeds PyTorch's global generator."""
        import torch

        module = f"transformers.models.{self.module}"
        configuration = getattr(importlib.import_module(f"{module}.configuration_{self.module}"), self.classes[0])
        model_class = getattr(importlib.import_module(f"{module}.modeling_{self.module}"), self.classes[1])
        torch.manual_seed(seed)
        return model_class(configuration(**self.settings)).train()


_VOCABULARY = {"vocab_size": 8192, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
_TINY = {"vocab_size": 128}

CONFIGURATIONS = {
    c.name: c
    for c in (
        Configuration(
            name="qwen3.5",
            shaped_like="Qwen3.5-0.8B",
            scale=4,
            module="qwen3_5",
            classes=("Qwen3_5TextConfig", "Qwen3_5ForCausalLM"),
            settings=_VOCABULARY
            | {
                "hidden_size": 256, "intermediate_size": 896, "num_hidden_layers": 8, "num_attention_heads": 2,
                "num_key_value_heads": 1, "head_dim": 256, "linear_num_key_heads": 4, "linear_num_value_heads": 4,
                "linear_key_head_dim": 128, "linear_value_head_dim": 128,
            },
            tiny_settings=_TINY
            | {
                "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "head_dim": 16,
                "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 8,
            },
            operator="chunk_gated_delta_rule",
        ),
        Configuration(
            name="kimi-linear",
            shaped_like="Kimi-Linear-48B-A3B",
            scale=8,
            module="kimi_linear",
            classes=("KimiLinearConfig", "KimiLinearForCausalLM"),
            settings=_VOCABULARY
            | {
                "hidden_size": 288, "intermediate_size": 1152, "moe_intermediate_size": 128, "num_hidden_layers": 4,
                "num_attention_heads": 4, "num_key_value_heads": 4, "linear_num_heads": 4, "linear_head_dim": 128,
                "kv_lora_rank": 64, "num_local_experts": 8, "num_experts_per_tok": 2, "n_group": 1,
                "layer_types": ["linear_attention"] * 3 + ["full_attention"],
            },
            tiny_settings=_TINY
            | {
                "hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 16, "num_hidden_layers": 2,
                "num_attention_heads": 2, "num_key_value_heads": 2, "linear_num_heads": 2, "linear_head_dim": 16,
                "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "num_local_experts": 3,
                "num_experts_per_tok": 2, "layer_types": ["linear_attention", "full_attention"],
            },
            operator="chunk_kda",
        ),
        Configuration(
            name="granite-4",
            shaped_like="Granite-4.0-H-Micro",
            scale=4,
            module="granitemoehybrid",
            classes=("GraniteMoeHybridConfig", "GraniteMoeHybridForCausalLM"),
            settings=_VOCABULARY
            | {
                "hidden_size": 512, "intermediate_size": 2048, "shared_intermediate_size": 2048, "num_local_experts": 0,
                "num_experts_per_tok": 0, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2,
                "mamba_n_heads": 16, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_expand": 2,
                "layer_types": ["linear_attention"] * 5 + ["full_attention"] + ["linear_attention"] * 2,
            },
            tiny_settings=_TINY
            | {
                "hidden_size": 32, "intermediate_size": 64, "shared_intermediate_size": 64, "num_hidden_layers": 2,
                "num_attention_heads": 4, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 16,
                "mamba_chunk_size": 32, "layer_types": ["linear_attention", "full_attention"],
            },
            operator="mamba_chunk_scan_combined",
        ),
        Configuration(
            name="nemotron-h",
            shaped_like="Nemotron-H-8B",
            scale=8,
            module="nemotron_h",
            classes=("NemotronHConfig", "NemotronHForCausalLM"),
            settings=_VOCABULARY
            | {
                "hidden_size": 512, "intermediate_size": 2688, "num_attention_heads": 4, "num_key_value_heads": 1,
                "head_dim": 128, "mamba_num_heads": 16, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 1,
                "layers_block_type": ["linear_attention", "mlp"] * 3 + ["linear_attention", "full_attention", "mlp"],
            },
            tiny_settings=_TINY
            | {
                "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "head_dim": 16, "mamba_num_heads": 4,
                "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "chunk_size": 32,
                "layers_block_type": ["linear_attention", "mlp", "full_attention"],
            },
            operator="mamba_chunk_scan_combined",
        ),
        Configuration(
            name="minimax",
            shaped_like="MiniMax-Text-01",
            scale=16,
            module="minimax",
            classes=("MiniMaxConfig", "MiniMaxForCausalLM"),
            settings=_VOCABULARY
            | {
                "hidden_size": 384, "intermediate_size": 576, "num_hidden_layers": 8, "num_attention_heads": 4,
                "num_key_value_heads": 1, "head_dim": 128, "num_local_experts": 4, "num_experts_per_tok": 2,
                "layer_types": ["linear_attention"] * 7 + ["full_attention"],
            },
            tiny_settings=_TINY
            | {
                "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 16, "num_local_experts": 3,
                "num_experts_per_tok": 2, "block_size": 16, "layer_types": ["linear_attention", "full_attention"],
            },
            operator="lightning attention of MiniMax",
        ),
        Configuration(
            name="gpt-oss",
            shaped_like="gpt-oss-20b",
            scale=8,
            module="gpt_oss",
            classes=("GptOssConfig", "GptOssForCausalLM"),
            settings=_VOCABULARY
            | {
                "hidden_size": 360, "intermediate_size": 360, "num_hidden_layers": 8, "num_attention_heads": 8,
                "num_key_value_heads": 1, "head_dim": 64, "sliding_window": 128, "num_local_experts": 4,
                "num_experts_per_tok": 2,
            },
            tiny_settings=_TINY
            | {
                "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8, "num_local_experts": 3, "num_experts_per_tok": 2,
            },
            operator="softmax attention",
            attention="attnbench",
        ),
    )
}  # fmt: skip
