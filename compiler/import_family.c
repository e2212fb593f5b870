/* The rows of import.h. The defaults are those of the families' reference implementations: a configuration that leaves
 * a key out was trained with them, so guessing another value would load the weights into a different model. */
#include "import.h"

#include <string.h>

static const struct import_key llama_keys[] = {
    {"num_hidden_layers", "layers", IMPORT_WHOLE, NULL},
    {"hidden_size", "hidden", IMPORT_WHOLE, NULL},
    {"num_attention_heads", "heads", IMPORT_WHOLE, NULL},
    {"num_key_value_heads", "kv_heads", IMPORT_WHOLE, ""},
    {"head_dim", "head_dim", IMPORT_WHOLE, ""},
    {"intermediate_size", "ffn", IMPORT_WHOLE, NULL},
    {"vocab_size", "vocab", IMPORT_WHOLE, NULL},
    {"rms_norm_eps", "norm_eps", IMPORT_REAL, "1e-6"},
    {"tie_word_embeddings", "tied", IMPORT_TRUTH, "off"},
};
static const struct import_limit llama_limits[] = {
    {"hidden_act", {"\"silu\"", "\"swish\""}, "the architecture's feed-forward layer is SwiGLU"},
    {"attention_bias", {"false"}, "the architecture's projections have no biases"},
    {"mlp_bias", {"false"}, "the architecture's feed-forward layer has no biases"},
};

const struct import_family import_families[] = {
    {"llama", "LlamaForCausalLM", "llama", llama_keys, (int)COUNT_OF(llama_keys), llama_limits, (int)COUNT_OF(llama_limits), true, "10000"},
};
const int import_family_count = (int)COUNT_OF(import_families);

const struct import_limit import_limits[] = {
    {"attention_dropout", {"0", "0.0"}, "planc trains without dropout"},
    {"hidden_dropout", {"0", "0.0"}, "planc trains without dropout"},
    {"hidden_dropout_prob", {"0", "0.0"}, "planc trains without dropout"},
    {"resid_pdrop", {"0", "0.0"}, "planc trains without dropout"},
    {"embd_pdrop", {"0", "0.0"}, "planc trains without dropout"},
    {"attn_pdrop", {"0", "0.0"}, "planc trains without dropout"},
    {"dropout", {"0", "0.0"}, "planc trains without dropout"},
    {"pretraining_tp", {"1"}, "its split sums would be rounded differently"},
    {"partial_rotary_factor", {"1", "1.0"}, "rotary positions turn whole heads"},
    {"rotary_pct", {"1", "1.0"}, "rotary positions turn whole heads"},
    {"sliding_window", {NULL}, "attention sees the whole sequence"},
    {"layer_types", {NULL}, "all layers attend alike"},
    {"no_rope_layers", {NULL}, "every layer turns its heads"},
    {"quantization_config", {NULL}, "quantized weights are not what planc trains"},
    {"compression_config", {NULL}, "quantized weights are not what planc trains"},
    {"qk_norm", {"false"}, "queries and keys are not normalised"},
    {"use_qk_norm", {"false"}, "queries and keys are not normalised"},
    {"clip_qkv", {NULL}, "projections are not clipped"},
    {"attn_logit_softcapping", {NULL}, "scores are not capped"},
    {"final_logit_softcapping", {NULL}, "logits are not capped"},
    {"query_pre_attn_scalar", {NULL}, "scores are scaled by 1 / sqrt(head_dim)"},
    {"attention_multiplier", {NULL}, "scores are scaled by 1 / sqrt(head_dim)"},
    {"logit_scale", {"1", "1.0"}, "logits are not scaled"},
    {"logits_scaling", {"1", "1.0"}, "logits are not scaled"},
    {"embedding_multiplier", {"1", "1.0"}, "embeddings are not scaled"},
    {"residual_multiplier", {"1", "1.0"}, "the residual stream is not scaled"},
    {"is_encoder_decoder", {"false"}, "there is no encoder"},
    {"add_cross_attention", {"false"}, "there is no encoder"},
};
const int import_limit_count = (int)COUNT_OF(import_limits);

bool import_is_harmless(const char *key)
{
    static const char *const harmless[] = {
        "architectures", "model_type", "torch_dtype", "dtype", "transformers_version", "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id",
        "use_cache", "max_position_embeddings", "initializer_range", "name_or_path", "_name_or_path", "auto_map", "attn_implementation",
        "_attn_implementation", "output_attentions", "output_hidden_states", "return_dict", "gradient_checkpointing", "tokenizer_class",
        "max_window_layers", "use_sliding_window", "rope_interleaved", "unsloth_version", "unsloth_fixed",
    };
    for (size_t i = 0; i < COUNT_OF(harmless); i++)
        if (!strcmp(harmless[i], key)) return true;
    return false;
}
