// The shapes of released models. Those of models in the package transformers are the defaults of its configuration classes.
#include "harness/schema/model_shapes.h"

#include <stdexcept>

namespace attnbench {

const std::vector<ModelShape>& model_shapes() {
  static const std::vector<ModelShape> all = {
      {"paper", 8, 8, 8, 64, 64, "all", false, "the attention of the paper's measurements",
       "\"Transformers are RNNs\" (2006.16236), figure 1"},
      {"qwen3.5", 16, 16, 32, 128, 128, "all", false, "layers with the gated delta rule; three of four layers",
       "transformers 5.23, Qwen3_5TextConfig: linear_num_key_heads, linear_num_value_heads, linear_key_head_dim"},
      {"qwen3.5-full", 16, 4, 4, 256, 256, "all", false, "layers with softmax attention; one of four layers",
       "transformers 5.23, Qwen3_5TextConfig: num_attention_heads, num_key_value_heads, head_dim"},
      {"kimi-linear", 32, 32, 32, 128, 128, "all", false, "layers with Kimi Delta Attention; three of four layers",
       "transformers 5.23, KimiLinearConfig: linear_num_heads, linear_head_dim"},
      {"nemotron-ssd", 8, 8, 128, 128, 64, "all", false,
       "state-space layers: groups as heads of queries and keys, the state as head_dim",
       "transformers 5.23, NemotronHConfig: n_groups, mamba_num_heads, ssm_state_size, mamba_head_dim"},
      {"granite-ssd", 1, 1, 128, 256, 64, "all", false,
       "state-space layers: groups as heads of queries and keys, the state as head_dim",
       "transformers 5.23, GraniteMoeHybridConfig: mamba_n_groups, mamba_n_heads, mamba_d_state, mamba_d_head"},
      {"minimax-lightning", 32, 32, 32, 128, 128, "all", false, "layers with lightning attention",
       "transformers 5.23, MiniMaxConfig: num_attention_heads, hidden_size"},
      {"gpt-oss", 64, 8, 8, 64, 64, "window:128", true, "layers with a window; every second layer",
       "transformers 5.23, GptOssConfig: num_attention_heads, num_key_value_heads, head_dim, sliding_window; GptOssAttention: "
       "sinks"},
      {"gpt-oss-full", 64, 8, 8, 64, 64, "all", true, "layers without a window; every second layer",
       "transformers 5.23, GptOssConfig: num_attention_heads, num_key_value_heads, head_dim; GptOssAttention: sinks"},
      {"gemma3", 8, 4, 4, 256, 256, "window:4096", false, "layers with a window; five of six layers",
       "transformers 5.23, Gemma3TextConfig: num_attention_heads, num_key_value_heads, head_dim, sliding_window"},
      {"gemma4", 8, 4, 4, 256, 256, "window:512", false, "layers with a window",
       "transformers 5.23, Gemma4TextConfig: num_attention_heads, num_key_value_heads, head_dim, sliding_window"},
      {"mistral", 32, 8, 8, 128, 128, "window:4096", false, "all layers",
       "transformers 5.23, MistralConfig: num_attention_heads, num_key_value_heads, head_dim, sliding_window"},
      {"deepseek-v3", 128, 128, 128, 192, 128, "all", false, "latent attention as it is trained: keys and values of every head",
       "transformers 5.23, DeepseekV3Config: num_attention_heads, qk_head_dim, v_head_dim"},
      {"deepseek-v3-decode", 128, 1, 1, 576, 512, "all", false,
       "latent attention as it decodes: every head reads one latent of 512 and 64 rotated dimensions",
       "transformers 5.23, DeepseekV3Config: num_attention_heads, kv_lora_rank, qk_rope_head_dim"},
  };
  return all;
}

const ModelShape& find_model_shape(std::string_view name) {
  std::string known;
  for (const auto& shape : model_shapes()) {
    if (shape.name == name) return shape;
    known += (known.empty() ? "" : ", ") + std::string(shape.name);
  }
  throw std::invalid_argument("shape = '" + std::string(name) + "', expected one of " + known);
}

std::vector<std::pair<std::string_view, Json>> axes_of(const ModelShape& shape) {
  return {{"heads", shape.heads},       {"kv_heads", shape.kv_heads},   {"value_heads", shape.value_heads},
          {"head_dim", shape.head_dim}, {"value_dim", shape.value_dim}, {"pattern", shape.pattern},
          {"sinks", shape.sinks}};
}

}  // namespace attnbench
