/* `planc import`: a configuration of Hugging Face transformers becomes a plan that trains the same
 * model. A value that would change the mathematics is refused with its line in the file. If there
 * are weights beside the configuration, their names and shapes are compared with the lowered
 * architecture, in both directions, before the plan is written. */
#define _GNU_SOURCE
#include "base/escape.h"
#include "commands/command.h"
#include "commands/import_config.h"
#include "commands/import_weights.h"
#include "ir/ir.h"
#include "passes/pipeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ── the plan ────────────────────────────────────────────────────────────────── */
static const char *quoted(const char *text)
{
    struct text t = {0};
    text_add(&t, "\"");
    for (const char *s = text; *s; s++) {
        if (*s == '"' || *s == '\\') text_add(&t, "\\");
        text_add_bytes(&t, s, 1);
    }
    text_add(&t, "\"");
    return t.bytes;
}

static void write_plan(const struct import *im, const char *title, bool weights, struct text *to)
{
    json_int_t longest = json_integer_value(json_object_get(im->root, im->family->longest));
    long long sequence = longest > 0 && longest < 1024 ? (long long)longest : 1024;
    text_add(to, "# Imported from a Hugging Face configuration. Every key below can be set on the "
                 "command line: --set batch.sequence=512\n");
    text_add(to, "use \"models/%s.plan\"\nuse \"clusters/cpu.plan\"\n\n", im->family->architecture);
    text_add(to, "plan %s {\n", quoted(title));
    text_add(to, "    model %s {\n        %s\n    }\n", im->family->architecture, im->model.bytes);
    text_add(to, "    cluster cpu { }\n");
    text_add(to, "    mesh { fsdp = 1;  dp = auto }\n");
    text_add(to, "    precision { compute = fp32 }\n");
    text_add(to, "    batch { sequence = %lld;  local = 1;  global = auto }\n", sequence);
    text_add(to, "    optimizer adamw { lr = 3e-4;  betas = [0.9, 0.95];  eps = 1e-8;  "
                 "weight_decay = 0.1;  clip = 1.0 }\n");
    text_add(to, "    schedule cosine { warmup = 0;  steps = 1000;  floor = 0.1 }\n");
    bool wide = json_integer_value(json_object_get(im->root, "vocab_size")) > 65536;
    text_add(to, "    data { train = \"tokens.bin\";  format = %s;  order = sequential }\n",
             wide ? "uint32" : "uint16");
    if (weights)
        text_add(to, "    init { from = %s }\n", quoted(im->folder));
    else
        text_add(to, "    init { seed = 0 }\n");
    text_add(to, "}\n");
}

/* The written text, as a plan: what the checker and the lowering say of it, and whether the stored
 * weights are all of it. NULL after a message, *status then set. */
static struct plan *prove(const struct import *im, const char *path,
                          const struct weight_files *weights, int *status)
{
    struct arguments none = {.command = "import", .fusion = true};
    struct plan *plan = command_plan(&none, path, status);
    struct graph *g = plan ? pass_lower(plan) : NULL;
    if (plan && !g) *status = EXIT_PLAN;
    if (!g) return NULL;
    const char *why = weights->set->tensors ? weights_match(weights, plan, g) : NULL;
    if (!why) return plan;
    *status = command_fail(EXIT_ENVIRONMENT, "%s: %s", im->folder, why);
    return NULL;
}

/* transformers adds the balance loss only where the router's logits are asked for, and that is for
 * fine-tuning; pre-training needs it. */
static const char *balance_note(const struct import *im)
{
    const json_t *coefficient = json_object_get(im->root, "router_aux_loss_coef");
    const char *otherwise = NULL; /* stays so where the family is no mixture */
    for (int i = 0; i < im->family->keys; i++)
        if (!strcmp(im->family->key[i].config, "router_aux_loss_coef"))
            otherwise = im->family->key[i].otherwise;
    if (!otherwise || json_is_true(json_object_get(im->root, "output_router_logits")) ||
        (import_is_there(coefficient) && !(json_number_value(coefficient) > 0)))
        return NULL;
    return text_format(
        "with the balance loss, router_aux_loss_coef = %s: transformers would train without it, "
        "since output_router_logits is not true; --set model.aux_weight=0 does as it does",
        import_is_there(coefficient) ? import_value_text(coefficient) : otherwise);
}

static void print_json(const struct import *im, const char *path, int64_t tensors)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:I}", "plan", utf8_text(path), "family",
                          im->family->architecture, "folder", utf8_text(im->folder), "tensors",
                          (json_int_t)tensors);
    if (im->absent.length)
        json_object_set_new(o, "as_transformers_has_it", json_string(im->absent.bytes));
    if (balance_note(im)) json_object_set_new(o, "note", json_string(balance_note(im)));
    printf("%s\n", json_dumps(o, JSON_INDENT(2)));
}

struct plan *import_folder(const char *folder, const struct weight_files *weights, int *status)
{
    struct import im = {0};
    *status = import_open(&im, folder);
    if (*status != EXIT_FINE) return NULL;
    *status = EXIT_PLAN;
    if (!import_read(&im)) return NULL;
    im.folder = weights->set->path; /* what a message about them names */
    if (im.family->fused && weights_have(weights, im.family->fused))
        import_entry(&im, "fused_experts", "on");
    struct text text = {0};
    write_plan(&im, "exported", false, &text);
    const char *path = text_format("%s/exported.plan", folder);
    if (!file_write(path, text.bytes, text.length)) {
        *status = command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", path, strerror(errno));
        return NULL;
    }
    struct plan *plan = prove(&im, path, weights, status);
    if (!unlink(path)) return plan;
    *status = command_fail(EXIT_ENVIRONMENT, "cannot remove '%s': %s", path, strerror(errno));
    return NULL;
}

int command_import(const struct arguments *a)
{
    struct import im = {0};
    if (a->word.n != 1 || !a->output)
        return command_fail(EXIT_USAGE, "import takes a folder or config.json, and -o FILE.plan");
    if (a->set.n)
        return command_fail(
            EXIT_USAGE, "import takes no --set: it writes every key, and build and run take them");
    json_in_arena();
    int status = import_open(&im, a->word.item[0]);
    if (status != EXIT_FINE) return status;
    if (!import_read(&im)) return EXIT_PLAN;
    struct weight_files weights = {0};
    const char *why = weights_open(im.folder, &weights);
    if (why) return command_fail(EXIT_ENVIRONMENT, "%s", why);

    if (im.family->fused && weights_have(&weights, im.family->fused))
        import_entry(&im, "fused_experts", "on");

    const char *base = strrchr(im.folder, '/'),
               *title = base && base[1] ? base + 1 : im.family->model_type;
    struct text plan = {0};
    write_plan(&im, title, weights.set->tensors > 0, &plan);
    struct stat old;
    if (!stat(a->output, &old) && !S_ISREG(old.st_mode))
        return command_fail(EXIT_USAGE, "-o wants a file to write, and '%s' is not one", a->output);
    const char *part = text_format("%s.%d.part", a->output, (int)getpid());
    if (!file_write(part, plan.bytes, plan.length))
        return command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", a->output, strerror(errno));
    if (prove(&im, part, &weights, &status)) status = EXIT_FINE;
    if (status == EXIT_FINE && rename(part, a->output))
        status =
            command_fail(EXIT_ENVIRONMENT, "cannot write '%s': %s", a->output, strerror(errno));
    if (status != EXIT_FINE) {
        if (unlink(part) && errno != ENOENT)
            command_fail(EXIT_ENVIRONMENT, "cannot remove '%s': %s", part, strerror(errno));
        return status;
    }
    if (a->json) {
        print_json(&im, a->output, weights.set->tensors);
        return EXIT_FINE;
    }
    if (weights.set->tensors)
        printf("%s: a %s; the tensors of %s are its weights, every one\n", a->output,
               im.family->architecture, im.folder);
    else
        printf(
            "%s: a %s; no safetensors beside the configuration, so its weights start from a seed\n",
            a->output, im.family->architecture);
    if (balance_note(&im)) printf("  %s\n", balance_note(&im));
    if (im.absent.length)
        printf("  not in the configuration, so as transformers has it: %s\n", im.absent.bytes);
    return EXIT_FINE;
}
