/* What an unknown name was meant to be. People bring the words of the tools they know; those words
 * are tables here, so that micro_batch_size finds batch.local and not the nearest spelling, and tp,
 * which has no counterpart, is told so instead of being taken for a slip of dp. */
#include "check/keys.h"

#include <string.h>

/* Keys under their names elsewhere. */
static const struct {
    const char *word, *path;
} synonyms[] = {
    {"learning_rate", "optimizer.lr"},
    {"max_lr", "optimizer.lr"},
    {"peak_lr", "optimizer.lr"},
    {"beta1", "optimizer.betas"},
    {"beta2", "optimizer.betas"},
    {"adam_beta1", "optimizer.betas"},
    {"adam_beta2", "optimizer.betas"},
    {"adam_eps", "optimizer.eps"},
    {"epsilon", "optimizer.eps"},
    {"wd", "optimizer.weight_decay"},
    {"grad_clip", "optimizer.clip"},
    {"clip_grad", "optimizer.clip"},
    {"max_norm", "optimizer.clip"},
    {"gradient_clipping", "optimizer.clip"},
    {"max_grad_norm", "optimizer.clip"},
    {"seq_len", "batch.sequence"},
    {"seq_length", "batch.sequence"},
    {"sequence_length", "batch.sequence"},
    {"context_length", "batch.sequence"},
    {"block_size", "batch.sequence"},
    {"max_seq_len", "batch.sequence"},
    {"micro_batch_size", "batch.local"},
    {"local_batch_size", "batch.local"},
    {"device_batch_size", "batch.local"},
    {"per_device_batch_size", "batch.local"},
    {"train_micro_batch_size_per_gpu", "batch.local"},
    {"micro_batch", "batch.local"},
    {"local_batch", "batch.local"},
    {"batch_size", "batch.global"},
    {"global_batch_size", "batch.global"},
    {"global_batch", "batch.global"},
    {"train_batch_size", "batch.global"},
    {"shard", "mesh.fsdp"},
    {"zero", "mesh.fsdp"},
    {"data_parallel_shard_degree", "mesh.fsdp"},
    {"dp_shard", "mesh.fsdp"},
    {"data_parallel", "mesh.dp"},
    {"replicate", "mesh.dp"},
    {"replicas", "mesh.dp"},
    {"ddp", "mesh.dp"},
    {"data_parallel_replicate_degree", "mesh.dp"},
    {"dp_replicate", "mesh.dp"},
    {"dtype", "precision.compute"},
    {"param_dtype", "precision.master"},
    {"grad_dtype", "precision.gradients"},
    {"reduce_dtype", "precision.gradients"},
    {"warmup_steps", "schedule.warmup"},
    {"warmup_iters", "schedule.warmup"},
    {"max_steps", "run.steps"},
    {"train_steps", "run.steps"},
    {"total_steps", "schedule.steps"},
    {"train_iters", "schedule.steps"},
    {"lr_decay_iters", "schedule.steps"},
    {"min_lr", "schedule.floor"},
    {"min_lr_ratio", "schedule.floor"},
    {"lr_min", "schedule.floor"},
    {"ignore_index", "data.ignore"},
    {"valid", "data.validation"},
    {"dataset", "data.train"},
    {"data_path", "data.train"},
    {"path", "data.train"},
    {"files", "data.train"},
    {"dataset_path", "data.train"},
    {"shuffle", "data.order"},
    {"save_every", "checkpoint.every"},
    {"save_interval", "checkpoint.every"},
    {"gpus_per_node", "cluster.devices_per_node"},
    {"num_nodes", "cluster.nodes"},
    {"nnodes", "cluster.nodes"},
    {"nproc_per_node", "cluster.devices_per_node"},
    {"recompute", "activation_checkpoint.mode"},
    {"ac", "activation_checkpoint.mode"},
    {"recompute_granularity", "activation_checkpoint.mode"},
    {"recompute_method", "activation_checkpoint.mode"},
    {"recompute_num_layers", "activation_checkpoint.every"},
    {"selective_ac_option", "activation_checkpoint.save"},
    {"fsdp_reshard_after_forward", "mesh.reshard"},
    {"reshard_after_forward", "mesh.reshard"},
    {"use_distributed_optimizer", "mesh.fsdp"},
    {"zero_stage", "mesh.fsdp"},
    {"stage", "mesh.fsdp"},
    {"shards", "mesh.fsdp"},
    {"world", "mesh.fsdp"},
    {"decay_ratio", "schedule.decay"},
    {"decay_steps", "schedule.decay"},
    {"cooldown", "schedule.decay"},
    {"lr_wsd_decay_iters", "schedule.decay"},
    {"cooldown_steps", "schedule.decay"},
    {"min_lr_factor", "schedule.floor"},
    {"lr_warmup_fraction", "schedule.warmup"},
    {"warmup_ratio", "schedule.warmup"},
    {"warmup_fraction", "schedule.warmup"},
    {"lr_warmup_iters", "schedule.warmup"},
    {"lr_warmup_steps", "schedule.warmup"},
    {"num_warmup_steps", "schedule.warmup"},
    {"lr_decay_steps", "schedule.steps"},
    {"num_training_steps", "schedule.steps"},
    {"num_steps", "schedule.steps"},
    {"iterations", "schedule.steps"},
    {"max_iters", "schedule.steps"},
    {"accumulate_grad_in_fp32", "precision.gradients"},
    {"bf16", "precision.compute"},
    {"torch_dtype", "precision.compute"},
    {"mixed_precision_param", "precision.compute"},
    {"mixed_precision_reduce", "precision.gradients"},
    {"fp16", "precision.compute"},
    {"seqlen", "batch.sequence"},
    {"ctx_len", "batch.sequence"},
    {"context_len", "batch.sequence"},
    {"max_length", "batch.sequence"},
    {"mbs", "batch.local"},
    {"gbs", "batch.global"},
    {"microbatch", "batch.local"},
    {"microbatch_size", "batch.local"},
    {"bs", "batch.global"},
    {"interval", "checkpoint.every"},
    {"checkpoint_interval", "checkpoint.every"},
    {"save_dir", "checkpoint.directory"},
    {"output_dir", "checkpoint.directory"},
    {"keep_latest_k", "checkpoint.keep"},
    {"load", "init.from"},
    {"pretrained", "init.from"},
    {"checkpoint_path", "init.from"},
    {"resume_from", "init.from"},
    {"num_gpus", "cluster.nodes"},
    {"n_gpus", "cluster.nodes"},
    {"num_devices", "cluster.nodes"},
    {"hosts", "cluster.nodes"},
    {"number_of_nodes", "cluster.nodes"},
    {"nccl_timeout", "run.timeout"},
    {"init_timeout_seconds", "run.timeout"},
    {"train_data", "data.train"},
    {"train_files", "data.train"},
    {"activation_checkpointing", "activation_checkpoint.mode"},
    {"gradient_checkpointing", "activation_checkpoint.mode"},
};

/* Hyper-parameters of a model under their names elsewhere; the first that the architecture
 * declares. */
static const struct {
    const char *word, *name;
} hypers[] = {
    {"n_layer", "layers"},
    {"n_layers", "layers"},
    {"num_layers", "layers"},
    {"num_hidden_layers", "layers"},
    {"depth", "layers"},
    {"d_model", "hidden"},
    {"dim", "hidden"},
    {"n_embd", "hidden"},
    {"hidden_size", "hidden"},
    {"hidden_dim", "hidden"},
    {"n_head", "heads"},
    {"n_heads", "heads"},
    {"num_heads", "heads"},
    {"num_attention_heads", "heads"},
    {"n_kv_heads", "kv_heads"},
    {"num_kv_heads", "kv_heads"},
    {"num_key_value_heads", "kv_heads"},
    {"num_query_groups", "kv_heads"},
    {"intermediate_size", "ffn"},
    {"ffn_hidden_size", "ffn"},
    {"ffn_dim", "ffn"},
    {"mlp_dim", "ffn"},
    {"d_ff", "ffn"},
    {"vocab_size", "vocab"},
    {"tie_word_embeddings", "tied"},
    {"tie_embeddings", "tied"},
    {"weight_tying", "tied"},
    {"rms_norm_eps", "norm_eps"},
    {"layer_norm_epsilon", "norm_eps"},
    {"layernorm_epsilon", "norm_eps"},
    {"rope_base", "rope_theta"},
    {"rotary_base", "rope_theta"},
    {"initializer_range", "init_std"},
    {"init_method_std", "init_std"},
    {"num_experts", "experts"},
    {"n_experts", "experts"},
    {"n_routed_experts", "experts"},
    {"num_local_experts", "experts"},
    {"num_experts_per_tok", "top_k"},
    {"experts_per_token", "top_k"},
    {"moe_router_topk", "top_k"},
    {"topk", "top_k"},
    {"moe_intermediate_size", "expert_width"},
    {"moe_ffn_hidden_size", "expert_width"},
    {"intermediate_size", "expert_width"},
    {"router_aux_loss_coef", "aux_weight"},
    {"moe_aux_loss_coeff", "aux_weight"},
    {"norm_topk_prob", "normalize"},
    {"kv_channels", "head_dim"},
    {"head_size", "head_dim"},
    {"d_head", "head_dim"},
    {"n_kv_head", "kv_heads"},
    {"n_head_kv", "kv_heads"},
    {"n_inner", "ffn"},
    {"feed_forward", "ffn"},
    {"d_ffn", "ffn"},
    {"mlp", "ffn"},
    {"embed_dim", "hidden"},
    {"embedding_dim", "hidden"},
    {"model_dim", "hidden"},
    {"width", "hidden"},
    {"d_embed", "hidden"},
    {"blocks", "layers"},
    {"n_vocab", "vocab"},
    {"vocabulary", "vocab"},
    {"padded_vocab_size", "vocab"},
    {"theta", "rope_theta"},
    {"rope_freq_base", "rope_theta"},
    {"eps", "norm_eps"},
    {"rms_eps", "norm_eps"},
    {"layernorm_eps", "norm_eps"},
    {"norm_epsilon", "norm_eps"},
    {"std", "init_std"},
    {"tie", "tied"},
    {"n_expert", "experts"},
    {"moe_num_experts", "experts"},
    {"moe_top_k", "top_k"},
    {"experts_per_tok", "top_k"},
    {"rope_scaling", "rope_factor"},
    {"rope_scaling_factor", "rope_factor"},
    {"n_positions", "context"},
    {"n_ctx", "context"},
    {"block_size", "context"},
    {"max_position_embeddings", "context"},
};

/* Values under their names elsewhere. */
static const struct {
    const char *word, *value;
} values[] = {
    {"true", "on"},          {"yes", "on"},          {"True", "on"},     {"enabled", "on"},
    {"false", "off"},        {"no", "off"},          {"False", "off"},   {"disabled", "off"},
    {"none", "off"},         {"None", "off"},        {"null", "off"},    {"bfloat16", "bf16"},
    {"float32", "fp32"},     {"float", "fp32"},      {"fp16", "bf16"},   {"float16", "bf16"},
    {"half", "bf16"},        {"f32", "fp32"},        {"single", "fp32"}, {"gpu", "cuda"},
    {"shuffle", "shuffled"}, {"random", "shuffled"}, {"u16", "uint16"},  {"u32", "uint32"},
    {"int32", "uint32"},     {"byte", "bytes"},      {"off", "none"},    {"all", "full"},
};

/* What has no counterpart, and what there is instead. */
#define LOGS "DIR/trainer --log-every N, and --metrics FILE for all of it"
#define ONLY "a plan divides devices by fsdp (weights shared) and dp (replicas)"
static const struct {
    const char *word, *advice;
} absent[] = {
    {"tp", "there is no tensor parallelism: " ONLY},
    {"tensor_parallel", "there is no tensor parallelism: " ONLY},
    {"tensor_parallel_degree", "there is no tensor parallelism: " ONLY},
    {"tensor_model_parallel_size", "there is no tensor parallelism: " ONLY},
    {"pp", "there is no pipeline parallelism: " ONLY},
    {"pipeline_parallel", "there is no pipeline parallelism: " ONLY},
    {"pipeline_parallel_degree", "there is no pipeline parallelism: " ONLY},
    {"pipeline_model_parallel_size", "there is no pipeline parallelism: " ONLY},
    {"cp", "there is no context parallelism: " ONLY},
    {"context_parallel_degree", "there is no context parallelism: " ONLY},
    {"sp", "there is no sequence parallelism: " ONLY},
    {"ep", "there is no expert parallelism: " ONLY},
    {"expert_parallel", "there is no expert parallelism: " ONLY},
    {"gpus",
     "a cluster has nodes x devices_per_node devices: nodes = 8 are 64 of them with eight a node"},
    {"devices",
     "a cluster has nodes x devices_per_node devices: nodes = 8 are 64 of them with eight a node"},
    {"world_size",
     "a cluster has nodes x devices_per_node devices: nodes = 8 are 64 of them with eight a node"},
    {"tokens", "batch.global counts sequences: tokens of a step / batch.sequence"},
    {"tokens_per_step", "batch.global counts sequences: tokens of a step / batch.sequence"},
    {"epochs", "a run is counted in steps: schedule.steps = tokens of the data / (batch.global x "
               "batch.sequence) an epoch"},
    {"gradient_accumulation", "accumulation follows: batch.global / (batch.local x devices)"},
    {"gradient_accumulation_steps", "accumulation follows: batch.global / (batch.local x devices)"},
    {"grad_accum", "accumulation follows: batch.global / (batch.local x devices)"},
    {"accumulation", "it follows: batch.global / (batch.local x devices)"},
    {"no_decay", "optimizer adamw { weights \"*norm*\" { weight_decay = 0 } } is a group"},
    {"no_weight_decay", "optimizer adamw { weights \"*norm*\" { weight_decay = 0 } } is a group"},
    {"param_groups", "optimizer adamw { weights \"*norm*\" { weight_decay = 0 } } is a group"},
    {"batch_accumulation_per_replica",
     "accumulation follows: batch.global / (batch.local x devices)"},
    {"accumulation_steps", "accumulation follows: batch.global / (batch.local x devices)"},
    {"accum", "accumulation follows: batch.global / (batch.local x devices)"},
    {"sequence_parallel", "there is no sequence parallelism: " ONLY},
    {"expert_parallel_degree", "there is no expert parallelism: " ONLY},
    {"context_parallel_size", "there is no context parallelism: " ONLY},
    {"total_tokens",
     "a run is counted in steps: schedule.steps = tokens / (batch.global x batch.sequence)"},
    {"train_tokens",
     "a run is counted in steps: schedule.steps = tokens / (batch.global x batch.sequence)"},
    {"split", "data.train are the files of training and nothing else; planc cannot validate yet"},
    {"weights", "files are one stream in the order of the list; a mixture is made before"},
    {"mixture", "files are one stream in the order of the list; a mixture is made before"},
    {"log_every", LOGS},
    {"log_interval", LOGS},
    {"log_freq", LOGS},
    {"logging_steps", LOGS},
    {"num_workers", "the trainer reads its files itself"},
    {"pin_memory", "the trainer reads its files itself"},
    {"flavor", "a flavor is a plan of yours, in numbers: layers, hidden, heads …; `planc import` "
               "reads a config.json"},
    {"ffn_dim_multiplier", "ffn is the width itself: 11008, 14336"},
    {"multiple_of", "ffn is the width itself: 11008, 14336"},
    {"mlp_ratio", "ffn is the width itself: ffn = 4 * hidden"},
    {"activation", "the family says its activation"},
    {"hidden_act", "the family says its activation"},
    {"bias", "the family says which weights have a bias"},
    {"attention_bias", "the family says which weights have a bias"},
    {"max_position_embeddings",
     "positions are rotary and need no length: batch.sequence is what is trained on"},
    {"max_seq_len",
     "positions are rotary and need no length: batch.sequence is what is trained on"},
    {"fused", "AdamW is one kernel: there is nothing to switch on"},
    {"foreach", "AdamW is one kernel: there is nothing to switch on"},
    {"momentum", "the first of betas is the momentum"},
    {"pad_token_id", "data.ignore is a target that is masked"},
    {"bos_token_id", "token files hold what a tokenizer wrote"},
    {"eos_token_id", "token files hold what a tokenizer wrote"},
    {"enable", "a section that is there is on"},
    {"enabled", "a section that is there is on"},
    {"dropout", "there is no dropout"},
    {"tokenizer", "data.train are token files: a tokenizer made them, and model.vocab is its size"},
    {"compile", "a plan is always compiled"},
    {"flash_attention", "attention never writes its scores: there is nothing to switch on"},
};

/* Sections of other tools. */
#define BATCH "batch { sequence = 4096;  local = 1;  global = 1024 }"
#define TRAIN                    \
    "a plan says this in " BATCH \
    ", optimizer adamw { lr }, schedule cosine { warmup;  steps } and run { steps }"
#define MESH "mesh { fsdp = 16;  dp = auto }"
#define CLUSTER "cluster h100 { nodes = 8 }"
#define MODEL "model llama { layers = 32 … }; `planc keys model` lists the families"
#define MOE                                                                                      \
    "model qwen3_moe { experts;  top_k;  expert_width … } is a mixture of experts, and so is " \
    "mixtral"
#define PRECISION "precision { compute = bf16 }"
#define DATA "data { train = \"tokens-*.bin\";  format = uint16 }"
#define RECOMPUTE "activation_checkpoint { mode = full }"
#define METRICS "a plan does not say what is logged: DIR/trainer --metrics FILE writes every step"
static const struct {
    const char *word, *help;
} sections[] = {
    {"training", TRAIN},
    {"train", TRAIN},
    {"trainer", TRAIN},
    {"training_args", TRAIN},
    {"hyperparameters", TRAIN},
    {"hparams", TRAIN},
    {"hyper", TRAIN},
    {"tokens", BATCH},
    {"batch_size", BATCH},
    {"batching", BATCH},
    {"sequence", BATCH},
    {"parallelism", MESH},
    {"parallel", MESH},
    {"parallelization", MESH},
    {"distributed", MESH},
    {"distribution", MESH},
    {"fsdp", MESH},
    {"ddp", MESH},
    {"hsdp", MESH},
    {"zero", MESH},
    {"zero_optimization", MESH},
    {"sharding", MESH},
    {"topology", MESH},
    {"strategy", MESH},
    {"hardware", CLUSTER},
    {"system", CLUSTER},
    {"machine", CLUSTER},
    {"machines", CLUSTER},
    {"nodes", CLUSTER},
    {"devices", CLUSTER},
    {"gpu", CLUSTER},
    {"gpus", CLUSTER},
    {"compute", CLUSTER},
    {"resources", CLUSTER},
    {"slurm", CLUSTER},
    {"env", CLUSTER},
    {"network", MODEL},
    {"net", MODEL},
    {"arch", MODEL},
    {"model_config", MODEL},
    {"transformer", MODEL},
    {"moe", MOE},
    {"experts", MOE},
    {"router", MOE},
    {"attention", MODEL},
    {"rope", MODEL},
    {"dtype", PRECISION},
    {"dtypes", PRECISION},
    {"mixed_precision", PRECISION},
    {"amp", PRECISION},
    {"bf16", PRECISION},
    {"fp16", PRECISION},
    {"fp8", PRECISION},
    {"float8", PRECISION},
    {"quantization", PRECISION},
    {"quantize", PRECISION},
    {"types", PRECISION},
    {"dataset", DATA},
    {"datasets", DATA},
    {"dataloader", DATA},
    {"data_loader", DATA},
    {"data_stages", DATA},
    {"corpus", DATA},
    {"input", DATA},
    {"files", DATA},
    {"optim", "optimizer adamw { lr = 3e-4 }"},
    {"adam", "optimizer adamw { lr = 3e-4 }"},
    {"opt", "optimizer adamw { lr = 3e-4 }"},
    {"scheduler", "schedule cosine { warmup = 2000;  steps = 100k }"},
    {"lr_scheduler", "schedule cosine { warmup = 2000;  steps = 100k }"},
    {"lr_schedule", "schedule cosine { warmup = 2000;  steps = 100k }"},
    {"learning_rate",
     "optimizer adamw { lr } is its peak, schedule cosine { warmup;  steps;  floor } its way"},
    {"lr",
     "optimizer adamw { lr } is its peak, schedule cosine { warmup;  steps;  floor } its way"},
    {"learning_rate_scheduler", "schedule cosine { warmup = 2000;  steps = 100k }"},
    {"ac", RECOMPUTE},
    {"recompute", RECOMPUTE},
    {"remat", RECOMPUTE},
    {"activation_checkpointing", RECOMPUTE},
    {"gradient_checkpointing", RECOMPUTE},
    {"recomputation", RECOMPUTE},
    {"checkpoints", "checkpoint saves the state of training; what is computed again is "
                    "activation_checkpoint { mode = full }"},
    {"checkpointing", "checkpoint saves the state of training; what is computed again is "
                      "activation_checkpoint { mode = full }"},
    {"logging", METRICS},
    {"log", METRICS},
    {"metrics", METRICS},
    {"profiling", METRICS},
    {"profiler", METRICS},
    {"wandb", METRICS},
    {"tensorboard", METRICS},
    {"monitoring", METRICS},
    {"validation", "planc cannot validate yet; data { validation } will say on what"},
    {"eval", "planc cannot validate yet; data { validation } will say on what"},
    {"evaluation", "planc cannot validate yet; data { validation } will say on what"},
    {"tokenizer",
     "data { train } are token files: a tokenizer made them, and model.vocab is its size"},
    {"comm",
     "a plan does not say how to communicate; run { timeout = 10min } is how long a rank waits"},
    {"nccl",
     "a plan does not say how to communicate; run { timeout = 10min } is how long a rank waits"},
    {"compile", "a plan is always compiled"},
    {"loss",
     "the model's architecture says its loss; batch { loss_chunks } works it out in pieces"},
    {"seed", "init { seed = 0 } is that of the weights, data { seed = 0 } that of the order"},
    {"initialization", "init { seed = 0 }, or init { from = \"folder\" }"},
    {"init_weights", "init { seed = 0 }, or init { from = \"folder\" }"},
    {"resume", "init { from = \"folder\" } begins with weights; planc cannot resume yet"},
    {"if", "a value may be condition ? a : b; what must hold is require (condition) \"why\""},
    {"when", "when stands in architectures; in a plan a value may be condition ? a : b"},
    {"for", "alternatives are written 8 | 16 or 1..4, and `check` judges each"},
    {"sweep", "alternatives are written in place: fsdp = 8 | 16, and `check` judges each"},
    {"search", "alternatives are written in place: fsdp = 8 | 16, and `check` judges each"},
    {"grid", "alternatives are written in place: fsdp = 8 | 16, and `check` judges each"},
    {"defaults", "a key that is not given has its default; `planc keys` says which"},
    {"include", "use \"file\" stands before the plan"},
    {"general", "a plan has a title and no more of the kind: plan \"title\" { … }"},
    {"job", "a plan has a title and no more of the kind: plan \"title\" { … }"},
    {"experiment", "a plan has a title and no more of the kind: plan \"title\" { … }"},
    {"global", "a constant stands outside the plan: name = value"},
    {"constants", "a constant stands outside the plan: name = value"},
    {"variables", "a constant stands outside the plan: name = value"},
    {"vars", "a constant stands outside the plan: name = value"},
    {"experimental", "there is nothing of the kind: a key works, or is refused"},
};

const char *foreign_section(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(sections); i++)
        if (strcmp(sections[i].word, name) == 0) return sections[i].help;
    return NULL;
}

/* What works instead of what keys.def says planc cannot do yet. */
static const struct {
    const char *missing, *help;
} instead[] = {
    {"save checkpoints", "DIR/trainer --final FILE writes the weights at the end; init { from = "
                         "\"folder\" } begins with them"},
    {"validate", "the loss on other files: run with init.from = the weights, data.train = those "
                 "files, optimizer.lr = 0 and few run.steps"},
    {"end a run by the clock",
     "SIGTERM ends a run in order: timeout -s TERM 10h mpirun … DIR/trainer"},
    {"choose between faster and repeatable kernels (the cpu is always repeatable)",
     "leave it out: all kernels are repeatable"},
};

const char *key_instead(enum key_id key)
{
    for (size_t i = 0; i < COUNT_OF(instead); i++)
        if (strcmp(instead[i].missing, key_rows[key].missing) == 0) return instead[i].help;
    return NULL;
}

const char *foreign_number(const char *word)
{
    static const char *const numbers[] = {"zero", "one",   "two",   "three", "four", "five",
                                          "six",  "seven", "eight", "nine",  "ten"};
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        if (strcmp(numbers[i], word) == 0) return text_format("%zu", i);
    return NULL;
}

const char *foreign_advice(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(absent); i++)
        if (strcmp(absent[i].word, name) == 0) return absent[i].advice;
    return NULL;
}

const char *foreign_hyper(const char *name, const char *const *declared, int n)
{
    for (size_t i = 0; i < COUNT_OF(hypers); i++)
        for (int k = 0; k < n && strcmp(hypers[i].word, name) == 0; k++)
            if (strcmp(hypers[i].name, declared[k]) == 0) return declared[k];
    return NULL;
}

const char *foreign_switch(const char *word)
{
    for (size_t i = 0; i < COUNT_OF(values); i++)
        if (strcmp(values[i].word, word) == 0 &&
            (strcmp(values[i].value, "on") == 0 || strcmp(values[i].value, "off") == 0))
            return values[i].value;
    return NULL;
}

const char *foreign_value(enum key_id key, const char *word)
{
    bool works;
    for (size_t i = 0; i < COUNT_OF(values); i++) {
        const char *ours = values[i].value;
        bool is_switch = key_rows[key].type == KEY_SWITCH && foreign_switch(word) == ours;
        if (strcmp(values[i].word, word) == 0 &&
            (is_switch || words_find(key_rows[key].words, ours, &works)))
            return ours;
    }
    return NULL;
}

/* ── Guessing ────────────────────────────────────────────────────────────────── */

static const char *guess_in_section(const char *section, const char *name)
{
    const char *names[KEY_COUNT];
    int n = 0;
    enum section_id s = section_find(section);
    for (int k = 0; k < KEY_COUNT; k++)
        if (key_rows[k].section == s) names[n++] = key_rows[k].name;
    const char *near = nearest_name(name, names, n);
    return near ? intern_format("%s.%s", section, near) : NULL;
}

/* The same name in another section, one that works before one that does not; or the nearest name
 * anywhere. */
static const char *guess_anywhere(const char *name)
{
    const char *found = NULL, *names[KEY_COUNT];
    bool works = false;
    for (int k = 0; k < KEY_COUNT; k++) {
        names[k] = key_rows[k].name;
        if (strcmp(key_rows[k].name, name) == 0 &&
            (!found || (!works && !key_rows[k].missing[0]))) {
            found = key_path((enum key_id)k);
            works = !key_rows[k].missing[0];
        }
    }
    const char *near = found ? NULL : nearest_name(name, names, KEY_COUNT);
    return near ? guess_anywhere(near) : found;
}

/* Words that mean a key only in one section. */
static const struct {
    const char *section, *word, *path;
} in_place[] = {
    {"data", "dtype", "data.format"},
    {"data", "type", "data.format"},
    {"data", "token_dtype", "data.format"},
    {"precision", "reduce", "precision.gradients"},
    {"precision", "param", "precision.master"},
    {"precision", "params", "precision.master"},
    {"precision", "weights", "precision.master"},
    {"precision", "grad", "precision.gradients"},
    {"precision", "grads", "precision.gradients"},
    {"precision", "optimizer", "precision.moments"},
    {"precision", "activations", "precision.compute"},
    {"precision", "type", "precision.compute"},
    {"batch", "size", "batch.global"},
    {"batch", "micro", "batch.local"},
    {"batch", "per_device", "batch.local"},
    {"batch", "length", "batch.sequence"},
    {"batch", "seq", "batch.sequence"},
    {"batch", "context", "batch.sequence"},
    {"batch", "total", "batch.global"},
    {"cluster", "count", "cluster.nodes"},
    {"cluster", "size", "cluster.nodes"},
    {"run", "for", "run.steps"},
    {"run", "seed", "init.seed"},
    {"schedule", "min", "schedule.floor"},
    {"schedule", "end", "schedule.floor"},
    {"schedule", "final", "schedule.floor"},
    {"schedule", "length", "schedule.steps"},
    {"schedule", "horizon", "schedule.steps"},
    {"activation_checkpoint", "type", "activation_checkpoint.mode"},
    {"activation_checkpoint", "policy", "activation_checkpoint.mode"},
    {"activation_checkpoint", "memory", "activation_checkpoint.budget"},
    {"init", "path", "init.from"},
    {"init", "weights", "init.from"},
    {"init", "load", "init.from"},
};

const char *key_guess(const char *section, const char *name)
{
    for (size_t i = 0; i < COUNT_OF(in_place); i++)
        if (strcmp(in_place[i].section, section) == 0 && strcmp(in_place[i].word, name) == 0)
            return in_place[i].path;
    if (strchr(name, '-')) {
        char *plain = take(strlen(name) + 1);
        for (size_t i = 0; name[i]; i++) plain[i] = name[i] == '-' ? '_' : name[i];
        name = intern(plain);
    }
    const char *words[COUNT_OF(synonyms)];
    for (size_t i = 0; i < COUNT_OF(synonyms); i++) {
        words[i] = synonyms[i].word;
        if (strcmp(name, words[i]) == 0) return synonyms[i].path;
    }
    if (foreign_advice(name)) return NULL;
    const char *near = guess_in_section(section, name);
    if (near) return near;
    for (int k = 0; k < KEY_COUNT; k++) /* an exact name elsewhere is no slip of the pen */
        if (strcmp(key_rows[k].name, name) == 0) return guess_anywhere(name);
    const char *word = nearest_name(name, words, (int)COUNT_OF(words));
    for (size_t i = 0; word && i < COUNT_OF(synonyms); i++)
        if (synonyms[i].word == word) return synonyms[i].path;
    return strlen(name) >= 4 ? guess_anywhere(name) : NULL;
}
