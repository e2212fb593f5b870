/* The rows of import.h. The defaults are those of the families' reference implementations: a
 * configuration that leaves a key out was trained with them, so guessing another value would load
 * the weights into a different model. */
#include "commands/import.h"

/* What the families after llama share, before and after what is their own. */
#define SIZES(kv_otherwise, width_otherwise)                                   \
    {"num_hidden_layers", "layers", IMPORT_WHOLE, NULL, NULL},                 \
        {"hidden_size", "hidden", IMPORT_WHOLE, NULL, NULL},                   \
        {"num_attention_heads", "heads", IMPORT_WHOLE, NULL, NULL},            \
        {"num_key_value_heads", "kv_heads", IMPORT_WHOLE, kv_otherwise, NULL}, \
    {                                                                          \
        "head_dim", "head_dim", IMPORT_WHOLE, width_otherwise, NULL            \
    }

#define NORM_AND_REST(eps)                                          \
    {"vocab_size", "vocab", IMPORT_WHOLE, NULL, NULL},              \
        {"rms_norm_eps", "norm_eps", IMPORT_REAL, eps, NULL},       \
        {"tie_word_embeddings", "tied", IMPORT_TRUTH, "off", NULL}, \
    {                                                               \
        "initializer_range", "init_std", IMPORT_FRACTION, "", NULL  \
    }

#define SWIGLU                                                                                     \
    {                                                                                              \
        "hidden_act", {"\"silu\"", "\"swish\""}, "the architecture's feed-forward layer is SwiGLU" \
    }
#define LLAMA_LIMITS                                                                        \
    SWIGLU, {"attention_bias", {"false"}, "the architecture's projections have no biases"}, \
        {"attention_out_bias", {"false"}, "the architecture's projections have no biases"}, \
        {"qkv_bias", {"false"}, "the architecture's projections have no biases"},           \
        {"use_bias", {"false"}, "the architecture's projections have no biases"},           \
    {                                                                                       \
        "mlp_bias", {"false"}, "the architecture's feed-forward layer has no biases"        \
    }

#define NO_WINDOW                                                     \
    {                                                                 \
        "sliding_window", {NULL}, "attention sees the whole sequence" \
    }
#define NO_QK_NORM                                                         \
    {"qk_norm", {"false"}, "queries and keys are not normalised"},         \
        {"use_qk_norm", {"false"}, "queries and keys are not normalised"}, \
    {                                                                      \
        "qk_layernorm", {"false"}, "queries and keys are not normalised"   \
    }
/* The window of a Qwen's mixture is switched off by use_sliding_window = false. */
#define WINDOW_ASIDE \
    {"sliding_window", {"*"}, ""}, { "max_window_layers", {"*"}, "" }
#define QK_NORM                                                    \
    {"qk_norm", {"true"}, "queries and keys are normalised"},      \
    {                                                              \
        "use_qk_norm", {"true"}, "queries and keys are normalised" \
    }
/* router_aux_loss_coef is obeyed whether or not the router's logits are returned as well. */
#define MIXTURE_LIMITS                                                                       \
    {"output_router_logits", {"*"}, ""},                                                     \
        {"router_jitter_noise", {"0"}, "nothing is added to what the router sees"},          \
        {"input_jitter_noise", {"0"}, "nothing is added to what the router sees"},           \
        {"router_z_loss_coef", {"0"}, "transformers does not compute it for this family"},   \
        {"z_loss_coef", {"0"}, "transformers does not compute it for this family"},          \
        {"n_group", {"1"}, "the most probable experts are chosen, whatever their group"},    \
        {"topk_group", {"1"}, "the most probable experts are chosen, whatever their group"}, \
        {"expert_capacity", {NULL}, "no token is dropped"},                                  \
        {"capacity_factor", {NULL}, "no token is dropped"},                                  \
    {                                                                                        \
        "moe_capacity_factor", {NULL}, "no token is dropped"                                 \
    }

#define PLAIN_MIXTURE_LIMITS                                                                     \
    {"routed_scaling_factor", {"1"}, "what the experts give is not scaled"},                     \
        {"n_shared_experts", {"0"}, "there are no experts that every token has"},                \
        {"num_shared_experts", {"0"}, "there are no experts that every token has"},              \
        {"shared_expert_intermediate_size", {"0"}, "there are no experts that every token has"}, \
        {"first_k_dense_replace",                                                                \
         {"0"},                                                                                  \
         "dense layers are said by mlp_only_layers and decoder_sparse_step"},                    \
    {                                                                                            \
        "moe_layer_freq", {"1"},                                                                 \
            "dense layers are said by mlp_only_layers and decoder_sparse_step"                   \
    }

/* As DeepSeek-V3 calls them; transformers' classes of these families read neither. */
#define ROUTER_WORDS                                                                \
    {"scoring_func", "sigmoid", IMPORT_WORD, "off", "softmax off sigmoid on"},      \
    {                                                                               \
        "topk_method", "balance_bias", IMPORT_WORD, "off", "greedy off noaux_tc on" \
    }

static const struct import_key llama_keys[] = {
    SIZES("", ""),
    {"intermediate_size", "ffn", IMPORT_WHOLE, NULL, NULL},
    NORM_AND_REST("1e-6"),
};
static const struct import_limit llama_limits[] = {LLAMA_LIMITS, NO_WINDOW, NO_QK_NORM};

static const struct import_key qwen2_keys[] = {
    SIZES(NULL, ""),
    {"intermediate_size", "ffn", IMPORT_WHOLE, NULL, NULL},
    NORM_AND_REST("1e-6"),
};
static const struct import_limit qwen2_limits[] = {
    SWIGLU,
    NO_QK_NORM,
    {"attention_bias", {"*"}, ""}, /* read by nothing: the biases are always there */
    {"qkv_bias", {"true"}, "queries, keys and values have biases"},
    {"use_bias", {"*"}, ""},
    {"attention_out_bias", {"false"}, "what attention gives is projected without a bias"},
    {"mlp_bias", {"false"}, "the architecture's feed-forward layer has no biases"},
    {"use_mrope", {"false"}, "positions are one number"},
};

static const struct import_key qwen3_keys[] = {
    SIZES(NULL, "128"), /* whatever hidden / heads is */
    {"intermediate_size", "ffn", IMPORT_WHOLE, NULL, NULL},
    NORM_AND_REST("1e-6"),
};
static const struct import_limit qwen3_limits[] = {LLAMA_LIMITS, QK_NORM};

static const struct import_key qwen3_moe_keys[] = {
    SIZES(NULL, ""),
    {"num_experts|num_local_experts", "experts", IMPORT_WHOLE, NULL, NULL},
    {"num_experts_per_tok", "top_k", IMPORT_WHOLE, NULL, NULL},
    {"moe_intermediate_size", "expert_width", IMPORT_WHOLE, NULL, NULL},
    {"norm_topk_prob", "normalize", IMPORT_TRUTH, "off", NULL},
    {"router_aux_loss_coef", "aux_weight", IMPORT_FRACTION, "0.001", NULL},
    ROUTER_WORDS,
    NORM_AND_REST("1e-6"),
};
static const struct import_limit qwen3_moe_limits[] = {LLAMA_LIMITS, WINDOW_ASIDE, QK_NORM,
                                                       MIXTURE_LIMITS, PLAIN_MIXTURE_LIMITS};

static const struct import_key glm4_moe_keys[] = {
    SIZES(NULL, ""),
    {"n_routed_experts|num_local_experts", "experts", IMPORT_WHOLE, NULL, NULL},
    {"num_experts_per_tok", "top_k", IMPORT_WHOLE, NULL, NULL},
    {"moe_intermediate_size", "expert_width", IMPORT_WHOLE, NULL, NULL},
    {"first_k_dense_replace", "first_dense", IMPORT_COUNT, "1", NULL},
    {"intermediate_size", "ffn", IMPORT_COUNT, NULL, NULL},
    {"n_shared_experts", "shared_experts", IMPORT_COUNT, "1", NULL},
    {"norm_topk_prob", "normalize", IMPORT_TRUTH, "on", NULL},
    {"routed_scaling_factor", "routed_scale", IMPORT_REAL, "1", NULL},
    {"attention_bias", "attention_bias", IMPORT_TRUTH, "off", NULL},
    {"use_qk_norm", "qk_norm", IMPORT_TRUTH, "off", NULL},
    NORM_AND_REST("1e-5"),
};
static const struct import_limit glm4_moe_limits[] = {
    SWIGLU,
    NO_WINDOW,
    MIXTURE_LIMITS,
    {"attention_out_bias", {"false"}, "what attention gives is projected without a bias"},
    {"mlp_bias", {"false"}, "the architecture's feed-forward layers have no biases"},
    {"scoring_func", {"\"sigmoid\""}, "experts are chosen by sigmoids"},
    {"topk_method", {"\"noaux_tc\""}, "a bias balances the experts"},
    {"moe_layer_freq", {"1"}, "all layers after the first ones have experts"},
    {"num_nextn_predict_layers", {"*"}, "the layers that predict further tokens are left out"},
    {"num_mtp_layers", {"*"}, "the layers that predict further tokens are left out"},
};

static const struct import_key mixtral_keys[] = {
    SIZES(NULL, ""),
    {"num_local_experts", "experts", IMPORT_WHOLE, NULL, NULL},
    {"num_experts_per_tok", "top_k", IMPORT_WHOLE, NULL, NULL},
    {"intermediate_size", "ffn", IMPORT_WHOLE, NULL, NULL},
    {"router_aux_loss_coef", "aux_weight", IMPORT_FRACTION, "0.001", NULL},
    ROUTER_WORDS,
    NORM_AND_REST("1e-5"),
};
static const struct import_limit mixtral_limits[] = {
    LLAMA_LIMITS,
    NO_WINDOW,
    NO_QK_NORM,
    MIXTURE_LIMITS,
    PLAIN_MIXTURE_LIMITS,
    {"norm_topk_prob", {"true"}, "the weights of the chosen experts always sum to 1"},
};

static const struct import_key mistral_keys[] = {
    SIZES(NULL, ""),
    {"intermediate_size", "ffn", IMPORT_WHOLE, NULL, NULL},
    {"sliding_window", "window", IMPORT_WHOLE_OR_NONE, "4096", NULL},
    NORM_AND_REST("1e-6"),
};
static const struct import_limit mistral_limits[] = {
    LLAMA_LIMITS,
    NO_QK_NORM,
    {"layer_types", {NULL}, "the layers of a Mistral have the same window, or none"},
};

static const struct import_key phi3_keys[] = {
    SIZES("", ""),
    {"intermediate_size", "ffn", IMPORT_WHOLE, NULL, NULL},
    {"sliding_window", "window", IMPORT_WHOLE_OR_NONE, "0", NULL},
    NORM_AND_REST("1e-5"),
};
static const struct import_limit phi3_limits[] = {
    LLAMA_LIMITS,
    NO_QK_NORM,
    {"layer_types", {NULL}, "the layers of a Phi-3 have the same window, or none"},
    /* of longrope scaling, which is refused */
    {"original_max_position_embeddings", {"*"}, ""},
};

#define GEMMA_LIMITS                                                                    \
    {"hidden_activation",                                                               \
     {"\"gelu_pytorch_tanh\""},                                                         \
     "the architecture's feed-forward layer has the tanh form of gelu"},                \
        {"hidden_act", {"*"}, ""}, /* read by nothing: hidden_activation is */          \
        {"attention_bias", {"false"}, "the architecture's projections have no biases"}, \
        {"use_bidirectional_attention", {"false"}, "attention is causal"},              \
    {                                                                                   \
        "cache_implementation", {"*"}, ""                                               \
    }
#define GEMMA_KEYS                                                              \
    SIZES(NULL, "256"), {"intermediate_size", "ffn", IMPORT_WHOLE, NULL, NULL}, \
        {"query_pre_attn_scalar", "query_width", IMPORT_WHOLE, "256", NULL},    \
    {                                                                           \
        "sliding_window", "window", IMPORT_WHOLE_OR_NONE, "4096", NULL          \
    }
#define TIED_AND_REST                                              \
    {"vocab_size", "vocab", IMPORT_WHOLE, NULL, NULL},             \
        {"rms_norm_eps", "norm_eps", IMPORT_REAL, "1e-6", NULL},   \
        {"tie_word_embeddings", "tied", IMPORT_TRUTH, "on", NULL}, \
    {                                                              \
        "initializer_range", "init_std", IMPORT_FRACTION, "", NULL \
    }
static const struct import_key gemma2_keys[] = {
    GEMMA_KEYS,
    {"attn_logit_softcapping", "score_cap", IMPORT_REAL_OR_NONE, "50", NULL},
    {"final_logit_softcapping", "logit_cap", IMPORT_REAL_OR_NONE, "30", NULL},
    TIED_AND_REST,
};
static const struct import_limit gemma2_limits[] = {GEMMA_LIMITS, NO_QK_NORM};

static const struct import_key gemma3_keys[] = {GEMMA_KEYS, TIED_AND_REST};
static const struct import_limit gemma3_limits[] = {GEMMA_LIMITS, QK_NORM};

static const struct import_key gpt_neox_keys[] = {
    {"num_hidden_layers", "layers", IMPORT_WHOLE, NULL, NULL},
    {"hidden_size", "hidden", IMPORT_WHOLE, NULL, NULL},
    {"num_attention_heads", "heads", IMPORT_WHOLE, NULL, NULL},
    {"intermediate_size", "ffn", IMPORT_WHOLE, NULL, NULL},
    {"vocab_size", "vocab", IMPORT_WHOLE, NULL, NULL},
    {"layer_norm_eps", "norm_eps", IMPORT_REAL, "1e-5", NULL},
    {"use_parallel_residual", "parallel", IMPORT_TRUTH, "on", NULL},
    {"attention_bias", "attention_bias", IMPORT_TRUTH, "on", NULL},
    {"hidden_act", "tanh_gelu", IMPORT_WORD, "off",
     "gelu off gelu_python off gelu_new on gelu_fast on gelu_pytorch_tanh on"},
    {"tie_word_embeddings", "tied", IMPORT_TRUTH, "off", NULL},
    {"initializer_range", "init_std", IMPORT_FRACTION, "", NULL},
};
static const struct import_limit gpt_neox_limits[] = {
    {"num_key_value_heads", {NULL}, "every query head has keys of its own"},
    {"head_dim", {NULL}, "heads are as wide as hidden / heads"},
    {"classifier_dropout", {"*"}, ""}, /* of the head of a classifier */
    NO_WINDOW,
    NO_QK_NORM,
};

static const struct import_key olmo2_keys[] = {
    SIZES("", ""),
    {"intermediate_size", "ffn", IMPORT_WHOLE, NULL, NULL},
    NORM_AND_REST("1e-5"),
};
static const struct import_limit olmo2_limits[] = {LLAMA_LIMITS, NO_WINDOW};

static const struct import_key olmoe_keys[] = {
    SIZES("", ""),
    {"num_experts|num_local_experts", "experts", IMPORT_WHOLE, "64", NULL},
    {"num_experts_per_tok", "top_k", IMPORT_WHOLE, "8", NULL},
    {"intermediate_size", "expert_width", IMPORT_WHOLE, NULL, NULL},
    {"norm_topk_prob", "normalize", IMPORT_TRUTH, "off", NULL},
    {"router_aux_loss_coef", "aux_weight", IMPORT_FRACTION, "0.01", NULL},
    ROUTER_WORDS,
    NORM_AND_REST("1e-5"),
};
static const struct import_limit olmoe_limits[] = {LLAMA_LIMITS, NO_WINDOW, MIXTURE_LIMITS,
                                                   PLAIN_MIXTURE_LIMITS};

static const struct import_key gpt2_keys[] = {
    {"n_layer", "layers", IMPORT_WHOLE, NULL, NULL},
    {"n_embd", "hidden", IMPORT_WHOLE, NULL, NULL},
    {"n_head", "heads", IMPORT_WHOLE, NULL, NULL},
    {"n_inner", "ffn", IMPORT_WHOLE, "", NULL},
    {"vocab_size", "vocab", IMPORT_WHOLE, NULL, NULL},
    {"n_positions", "context", IMPORT_WHOLE, NULL, NULL},
    {"layer_norm_epsilon", "norm_eps", IMPORT_REAL, "1e-5", NULL},
    {"activation_function", "erf_gelu", IMPORT_WORD, "off",
     "gelu_new off gelu_pytorch_tanh off gelu_fast off gelu on gelu_python on"},
    {"tie_word_embeddings", "tied", IMPORT_TRUTH, "on", NULL},
    {"initializer_range", "init_std", IMPORT_FRACTION, "", NULL},
};
static const struct import_limit gpt2_limits[] = {
    {"scale_attn_weights", {"true"}, "scores are scaled by 1 / sqrt(width of a head)"},
    {"scale_attn_by_inverse_layer_idx", {"false"}, "scores are scaled alike in every layer"},
    {"reorder_and_upcast_attn",
     {"false"},
     "queries are not scaled before the product, which would be rounded differently"},
    {"rope_theta", {NULL}, "positions are learned"},
    {"rope_scaling", {NULL}, "positions are learned"},
    {"rope_parameters", {NULL}, "positions are learned"},
    {"num_key_value_heads", {NULL}, "every query head has keys of its own"},
    {"multi_query", {"false"}, "every query head has keys of its own"},
    NO_WINDOW,
    NO_QK_NORM,
    {"n_special", {"*"}, ""}, /* of the first GPT, read by nothing */
    {"predict_special_tokens", {"*"}, ""},
    {"n_ctx", {"*"}, ""}, /* an older name of n_positions, read by nothing */
    {"summary_type", {"*"}, ""},
    {"summary_use_proj", {"*"}, ""},
    {"summary_activation", {"*"}, ""},
    {"summary_proj_to_labels", {"*"}, ""},
    /* the head of a classifier, which a language model has not */
    {"summary_first_dropout", {"*"}, ""},
};

/* planc trains without dropout, so the configuration says 0. */
#define SWIGLU_EXPORTED "\"hidden_act\": \"silu\",\n  \"attention_dropout\": 0.0"
#define LLAMA_EXPORTED SWIGLU_EXPORTED ",\n  \"attention_bias\": false"
#define GEMMA_EXPORTED                                                                 \
    "\"hidden_activation\": \"gelu_pytorch_tanh\",\n  \"attention_dropout\": 0.0,\n  " \
    "\"attention_bias\": false"
#define GPT2_EXPORTED                                         \
    "\"scale_attn_weights\": true,\n  \"attn_pdrop\": 0.0,\n" \
    "  \"embd_pdrop\": 0.0,\n  \"resid_pdrop\": 0.0"

/* The architecture has the name of the rows. */
#define ROWS(family)                                                                     \
    .architecture = #family, .key = family##_keys, .keys = (int)COUNT_OF(family##_keys), \
    .limit = family##_limits, .limits = (int)COUNT_OF(family##_limits)
#define LONGEST .longest = "max_position_embeddings"
const struct import_family import_families[] = {
    {.model_type = "llama",
     .class = "LlamaForCausalLM",
     ROWS(llama),
     LONGEST,
     .theta = "10000",
     .exported = LLAMA_EXPORTED ",\n  \"mlp_bias\": false"},
    {.model_type = "mistral",
     .class = "MistralForCausalLM",
     ROWS(mistral),
     LONGEST,
     .theta = "10000",
     .exported = SWIGLU_EXPORTED},
    {.model_type = "phi3",
     .class = "Phi3ForCausalLM",
     ROWS(phi3),
     LONGEST,
     .theta = "10000",
     .exported = SWIGLU_EXPORTED ",\n  \"resid_pdrop\": 0.0,\n  \"embd_pdrop\": 0.0",
     .rope = {.scaling = SCALING_NONE, .part_otherwise = "1"}},
    {.model_type = "qwen2",
     .class = "Qwen2ForCausalLM",
     ROWS(qwen2),
     LONGEST,
     .theta = "10000",
     .window_after = true,
     .exported = SWIGLU_EXPORTED},
    {.model_type = "qwen3",
     .class = "Qwen3ForCausalLM",
     ROWS(qwen3),
     LONGEST,
     .theta = "10000",
     .window_after = true,
     .exported = LLAMA_EXPORTED},
    {.model_type = "qwen3_moe",
     .class = "Qwen3MoeForCausalLM",
     ROWS(qwen3_moe),
     LONGEST,
     .theta = "10000",
     .dense = {"mlp_only_layers", "decoder_sparse_step", "intermediate_size"},
     .fused = "*.mlp.experts.gate_up_proj",
     .exported = LLAMA_EXPORTED ",\n  \"use_sliding_window\": false"},
    {.model_type = "glm4_moe",
     .class = "Glm4MoeForCausalLM",
     ROWS(glm4_moe),
     LONGEST,
     .theta = "10000",
     .fused = "*.mlp.experts.gate_up_proj",
     .exported = SWIGLU_EXPORTED ",\n  \"n_group\": 1,\n  \"topk_group\": 1,\n"
                                 "  \"num_nextn_predict_layers\": 0",
     .rope = {SCALING_YARN, NULL, NULL, "0.5", NULL}},
    {.model_type = "mixtral",
     .class = "MixtralForCausalLM",
     ROWS(mixtral),
     LONGEST,
     .theta = "1000000",
     .fused = "*.mlp.experts.gate_up_proj",
     .exported = LLAMA_EXPORTED},
    {.model_type = "olmo2",
     .class = "Olmo2ForCausalLM",
     ROWS(olmo2),
     LONGEST,
     .theta = "10000",
     .exported = LLAMA_EXPORTED},
    {.model_type = "olmoe",
     .class = "OlmoeForCausalLM",
     ROWS(olmoe),
     LONGEST,
     .theta = "10000",
     .fused = "*.mlp.experts.gate_up_proj",
     .exported = LLAMA_EXPORTED},
    {.model_type = "gemma2",
     .class = "Gemma2ForCausalLM",
     ROWS(gemma2),
     LONGEST,
     .theta = "10000",
     .exported = GEMMA_EXPORTED,
     .period = {NULL, "full_every", 2},
     .rope = {.scaling = SCALING_NONE}},
    {.model_type = "gemma3_text",
     .class = "Gemma3ForCausalLM",
     ROWS(gemma3),
     LONGEST,
     .theta = "1000000",
     .exported = GEMMA_EXPORTED,
     .period = {"sliding_window_pattern", "full_every", 6},
     .rope = {.scaling = SCALING_LINEAR, .local = "10000"}},
    {.model_type = "gpt2",
     .class = "GPT2LMHeadModel",
     ROWS(gpt2),
     .longest = "n_positions",
     .exported = GPT2_EXPORTED},
    {.model_type = "gpt_neox",
     .class = "GPTNeoXForCausalLM",
     ROWS(gpt_neox),
     LONGEST,
     .theta = "10000",
     .exported = "\"attention_dropout\": 0.0,\n  \"hidden_dropout\": 0.0",
     .rope = {SCALING_NONE, "rotary_emb_base", "rotary_pct", "0.25", NULL}},
};
const int import_family_count = (int)COUNT_OF(import_families);
