/* `planc keys [SECTION]`: prints the rows of keys.def and the families and clusters of the library.
 * Everything comes from a row or a file of the library, so the command agrees with the checker. A
 * key that does not work yet is marked. */
#define _XOPEN_SOURCE 700
#include "text/ast.h"
#include "commands/command.h"
#include "check/keys.h"

#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static void print_key(enum key_id key)
{
    const struct key_row *row = &key_rows[key];
    const char *type = key_type_text(key);
    const char *list[16];
    int refused = words_list(row->words, false, list, 16) - words_list(row->words, true, list, 16);
    const char *unit = row->unit[0] ? text_format(", %s", row->unit) : "";
    const char *fallback = row->fallback[0] ? text_format("; default %s", row->fallback) : "";
    printf("  %-17s %s%s%s\n  %-17s   %s\n", row->name, type, unit, fallback, "", row->help);
    if (row->missing[0])
        printf("  %-17s   refused: planc cannot %s yet\n", "", row->missing);
    else if (refused)
        printf("  %-17s   of these work: %s\n", "", words_text(row->words, true));
}

/* What the library brings for a section: families with their hyper-parameters, clusters. */
struct family {
    const char *name, *file, *needs, *may;
};
typedef VECTOR(struct family) families;

static const char *written(const struct ast *e)
{
    size_t n;
    const char *bytes = source_bytes(e->at.file, &n);
    return text_format("%.*s", e->at.to - e->at.from, bytes + e->at.from);
}

static struct family family_of(const char *file, const struct ast *block)
{
    struct family f = {block->kid[0]->kid[1]->text, file, NULL, NULL};
    struct text needs = {0}, may = {0};
    for (int i = 0; i < block->kid[1]->n; i++) {
        const struct ast *hyper = block->kid[1]->kid[i];
        if (hyper->kind != AST_BLOCK || strcmp(hyper->kid[0]->kid[0]->text, "hyper")) continue;
        for (int k = 0; k < hyper->kid[1]->n; k++) {
            const struct ast *item = hyper->kid[1]->kid[k];
            struct text *to = item->kind == AST_ENTRY ? &may : &needs;
            text_add(to, "%s%s", to->length ? ";  " : "", written(item));
        }
    }
    f.needs = needs.bytes;
    f.may = may.bytes;
    return f;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct family *)a)->name, ((const struct family *)b)->name);
}

static families library_of(const char *folder, const char *what)
{
    families all = {0};
    const char *library = plan_library();
    DIR *d = library ? opendir(text_format("%s/%s", library, folder)) : NULL;
    if (!d) return all;
    for (struct dirent *e; (e = readdir(d));) {
        size_t n, length = strlen(e->d_name);
        const char *shown = text_format("%s/%s", folder, e->d_name),
                   *path = text_format("%s/%s", library, shown), *bytes;
        if (length < 6 || strcmp(e->d_name + length - 5, ".plan") || !(bytes = text_read(path, &n)))
            continue;
        const struct ast *items = parse_source(source_add(shown, bytes, n));
        for (int i = 0; i < items->n; i++)
            if (items->kid[i]->kind == AST_BLOCK &&
                !strcmp(items->kid[i]->kid[0]->kid[0]->text, what) &&
                items->kid[i]->kid[0]->n == 2 && items->kid[i]->kid[0]->kid[1]->text)
                PUSH(&all, family_of(shown, items->kid[i]));
    }
    closedir(d);
    if (all.n) qsort(all.item, (size_t)all.n, sizeof *all.item, by_name);
    return all;
}

static families names_of(enum section_id section)
{
    if (section == S_model) return library_of("models", "architecture");
    if (section == S_cluster) return library_of("clusters", "cluster");
    if (section == S_trainer) return library_of("trainers", "trainer");
    return (families){0};
}

static void print_names(const families *all)
{
    for (int i = 0; i < all->n; i++) {
        const struct family *f = &all->item[i];
        printf("  %-17s use \"%s\"\n", f->name, f->file);
        if (f->needs) printf("  %-17s   needs %s\n", "", f->needs);
        if (f->may) printf("  %-17s   has   %s\n", "", f->may);
    }
}

static json_t *names_as_json(const families *all)
{
    json_t *list = json_array();
    for (int i = 0; i < all->n; i++) {
        const struct family *f = &all->item[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "name", f->name, "file",
                                              f->file, "needs", f->needs ? f->needs : "", "has",
                                              f->may ? f->may : ""));
    }
    return list;
}

static void print_section(enum section_id section)
{
    const struct section_row *row = &section_rows[section];
    printf("%s%s\n  %s\n", row->path, row->takes[0] ? " NAME" : "", row->help);
    if (row->takes[0] && row->takes[0] != '*') printf("  NAME: %s\n", words_text(row->takes, true));
    families library = names_of(section);
    print_names(&library);
    for (int k = 0; k < KEY_COUNT; k++)
        if (key_rows[k].section == section) print_key((enum key_id)k);
}

/* `key`: only keys of this name or path; "" for all. */
static json_t *section_as_json(enum section_id section, const char *key)
{
    json_t *keys = json_array();
    for (int k = 0; k < KEY_COUNT; k++) {
        const struct key_row *row = &key_rows[k];
        if (row->section == section &&
            (!key[0] || !strcmp(row->name, key) || !strcmp(key_path((enum key_id)k), key)))
            json_array_append_new(keys, json_pack("{s:s, s:s, s:s, s:s, s:b, s:s}", "name",
                                                  row->name, "type", key_type_text((enum key_id)k),
                                                  "unit", row->unit, "default", row->fallback,
                                                  "works", !row->missing[0], "help", row->help));
    }
    const struct section_row *row = &section_rows[section];
    families library = names_of(section);
    return json_pack("{s:s, s:s, s:o, s:o}", "section", row->path, "help", row->help, "names",
                     names_as_json(&library), "keys", keys);
}

/* Whether a section is the one asked for, or lies in it (cluster.device in cluster). */
static bool is_within(const char *path, const char *wanted)
{
    size_t n = strlen(wanted);
    return !strncmp(path, wanted, n) && (path[n] == 0 || path[n] == '.');
}

/* Keys by name or whole path, wherever they stand, and a family by its name; how many were
 * found. */
static int print_matches(const char *wanted)
{
    int found = 0;
    for (int k = 0; k < KEY_COUNT; k++)
        if (!strcmp(key_rows[k].name, wanted) || !strcmp(key_path((enum key_id)k), wanted)) {
            printf("%s%s\n", found++ ? "\n" : "", section_rows[key_rows[k].section].path);
            print_key((enum key_id)k);
        }
    families all[] = {names_of(S_model), names_of(S_cluster)};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        for (int n = 0; n < all[i].n; n++)
            if (!strcmp(all[i].item[n].name, wanted)) {
                families one = {&all[i].item[n], 1, 1};
                printf("%s%s\n", found++ ? "\n" : "", i ? "cluster" : "model");
                print_names(&one);
            }
    return found;
}

/* What the keys below stand in, for a reader who has never seen a plan. */
static const char example[] = "A plan is a text file; entries end with ';' or the line, numbers "
                              "carry their units, # starts a comment:\n\n"
                              "    use \"models/llama.plan\"\n"
                              "    use \"clusters/h100.plan\"\n\n"
                              "    plan \"a title\" {\n"
                              "        model llama { layers = 16;  hidden = 2048;  heads = 32;  "
                              "kv_heads = 8;  ffn = 8192;  vocab = 128256 }\n"
                              "        cluster h100 { nodes = 2 }\n"
                              "        mesh { fsdp = 16 }\n"
                              "        batch { sequence = 4096;  local = 2;  global = 256 }\n"
                              "        data { train = \"tokens-*.bin\";  format = uint32 }\n"
                              "    }\n\n"
                              "The sections, and the keys of each:\n\n";

/* Whether a family declares a hyper-parameter of this name. */
static bool declares(const struct family *f, const char *name)
{
    const char *texts[] = {f->needs, f->may};
    size_t n = strlen(name);
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        for (const char *at = texts[i]; at && *at;
             at = strstr(at, ";  ") ? strstr(at, ";  ") + 3 : NULL)
            if (!strncmp(at, name, n) && strchr("; =", at[n])) return true;
    return false;
}

/* A hyper-parameter, by its name here or elsewhere: the families that have it. */
static bool print_hyper(const char *wanted)
{
    static const char *const ours[] = {
        "layers",         "hidden",       "heads",        "kv_heads",     "ffn",
        "vocab",          "tied",         "norm_eps",     "rope_theta",   "init_std",
        "experts",        "top_k",        "expert_width", "aux_weight",   "normalize",
        "context",        "head_dim",     "rope_factor",  "dense_layers", "z_loss",
        "router_z_loss",  "balance_bias", "balance_rate", "sigmoid",      "first_dense",
        "shared_experts", "routed_scale", "rotary",       "qk_norm",      "attention_bias"};
    const char *meant = foreign_hyper(wanted, ours, (int)COUNT_OF(ours));
    families all = names_of(S_model);
    struct text t = {0};
    const char *name = meant ? meant : wanted;
    for (int i = 0; i < all.n; i++)
        if (declares(&all.item[i], name))
            text_add(&t, "%s%s", t.length ? ", " : "", all.item[i].name);
    if (t.length)
        printf("%s%s is a hyper-parameter of model %s\n`planc keys model` lists the families with "
               "theirs\n",
               meant ? text_format("%s here is %s, and ", wanted, meant) : "", name, t.bytes);
    return t.length > 0;
}

/* What there is instead of it, and that section's keys when it is one section. */
static void print_foreign_section(const char *wanted, const char *help)
{
    enum section_id s = section_find(intern_bytes(help, strcspn(help, " ")));
    printf("%s here: %s\n", wanted, help);
    if (s == SECTION_COUNT) return;
    printf("\n");
    print_section(s);
}

/* `bf16`, `selective`, `megatron`: a value, and the keys that take it. */
static bool print_value(const char *wanted)
{
    bool works, found = false;
    for (int k = 0; k < KEY_COUNT; k++)
        if (key_rows[k].words[0] && words_find(key_rows[k].words, wanted, &works)) {
            printf("%s%s is a value of %s\n\n%s\n", found ? "\n" : "", wanted,
                   key_path((enum key_id)k), section_rows[key_rows[k].section].path);
            print_key((enum key_id)k);
            found = true;
        }
    return found;
}

/* A word that is no section, key or family: what a section takes as its name, or a word of other
 * tools. */
static bool print_meant(const char *wanted)
{
    bool works;
    for (int s = 0; s < SECTION_COUNT; s++)
        if (section_rows[s].takes[0] != '*' && words_find(section_rows[s].takes, wanted, &works)) {
            print_section((enum section_id)s);
            return true;
        }
    if (print_hyper(wanted)) { /* of some families; the advice is for the others */
        if (foreign_advice(wanted)) printf("%s\n", foreign_advice(wanted));
        return true;
    }
    if (print_value(wanted)) return true;
    const char *guess = key_guess("", wanted), *section = foreign_section(wanted);
    enum key_id key = guess ? key_find_path(guess) : KEY_COUNT;
    if (foreign_advice(wanted))
        printf("%s\n", foreign_advice(wanted));
    else if (section)
        print_foreign_section(wanted, section);
    else if (key != KEY_COUNT)
        printf("%s here is %s\n\n%s\n", wanted, guess, section_rows[key_rows[key].section].path);
    if (key != KEY_COUNT && !section && !foreign_advice(wanted)) print_key(key);
    return foreign_advice(wanted) || section || key != KEY_COUNT;
}

/* `modle`: a section with letters swapped or changed is nearer than a key of another length. */
static bool print_swapped(const char *wanted)
{
    const char *names[SECTION_COUNT];
    for (int s = 0; s < SECTION_COUNT; s++) names[s] = section_rows[s].path;
    const char *near = nearest_name(wanted, names, SECTION_COUNT);
    if (!near || strlen(near) != strlen(wanted) || foreign_section(wanted) ||
        foreign_advice(wanted))
        return false;
    printf("%s here is %s\n\n", wanted, near);
    print_section(section_find(near));
    return true;
}

/* `training.seq_len`, `model.optim.sched.warmup_steps`: the part of the path that is known, first
 * as a key of its section, then without what is before it. */
static bool print_path(const char *wanted)
{
    const char *dot = strrchr(wanted, '.'), *first = strchr(wanted, '.');
    if (!dot || !dot[1]) return false;
    const char *outer = intern_bytes(wanted, (size_t)(first - wanted)),
               *section = intern_bytes(wanted, (size_t)(dot - wanted)),
               *guess = section_find(section) != SECTION_COUNT ? key_guess(section, dot + 1) : NULL;
    if (guess) {
        printf("%s here is %s\n\n", wanted, guess);
        return print_matches(guess) > 0;
    }
    if (section_find(section) != SECTION_COUNT && foreign_advice_in(section, dot + 1)) {
        printf("%s\n", foreign_advice_in(section, dot + 1));
        return true;
    }
    /* compile.enable, optimizer.name: the section is meant */
    bool whole = !strcmp(dot, ".enable") || !strcmp(dot, ".enabled") || !strcmp(dot, ".name");
    if (whole && section_find(section) != SECTION_COUNT) return keys_print(section);
    if ((!whole || !foreign_section(outer)) && keys_print(first + 1)) return true;
    if (!foreign_section(outer)) return false;
    print_foreign_section(outer, foreign_section(outer));
    return true;
}

bool keys_print(const char *wanted)
{
    bool printed = false;
    for (int s = 0; s < SECTION_COUNT; s++)
        if (is_within(section_rows[s].path, wanted)) {
            printf(printed ? "\n" : "");
            print_section((enum section_id)s);
            printed = true;
        }
    return printed || print_matches(wanted) || print_swapped(wanted) || print_path(wanted) ||
           print_meant(wanted);
}

static void print_all(void)
{
    fputs(example, stdout);
    for (int s = 0; s < SECTION_COUNT; s++) {
        printf(s ? "\n" : "");
        print_section((enum section_id)s);
    }
}

/* `--micro-batch-size=2` of another tool's command line, as a name: micro_batch_size. */
static const char *plain_word(const char *word)
{
    /* -b, -nk: of llm.c, which are rows with their dash */
    if (word[0] != '-' || (word[1] != '-' && strlen(word) <= 3)) return word;
    word += strspn(word, "-");
    size_t n = strcspn(word, "=");
    char *plain = take(n + 1);
    for (size_t i = 0; i < n; i++) plain[i] = word[i] == '-' ? '_' : word[i];
    return intern(plain);
}

int command_keys(const struct arguments *a)
{
    const char *wanted = a->word.n ? plain_word(a->word.item[0]) : "", *names[SECTION_COUNT];
    if (a->word.n > 1) return command_fail(EXIT_USAGE, "keys takes one section, not %d", a->word.n);
    json_in_arena();
    json_t *all = json_array();
    for (int s = 0; s < SECTION_COUNT; s++) {
        names[s] = section_rows[s].path;
        if (a->json && (!wanted[0] || is_within(names[s], wanted)))
            json_array_append_new(all, section_as_json((enum section_id)s, ""));
    }
    for (int s = 0;
         s < SECTION_COUNT && a->json && wanted[0] && section_find(wanted) == SECTION_COUNT; s++) {
        json_t *one = section_as_json((enum section_id)s, wanted);
        if (json_array_size(json_object_get(one, "keys"))) json_array_append_new(all, one);
    }
    families of[] = {names_of(S_model), names_of(S_cluster)};
    /* llama, h100: the section that it is a name of */
    for (size_t i = 0; i < COUNT_OF(of) && a->json && wanted[0] && !json_array_size(all); i++)
        for (int n = 0; n < of[i].n; n++)
            if (!strcmp(of[i].item[n].name, wanted))
                json_array_append_new(all, section_as_json(i ? S_cluster : S_model, ""));
    if (json_array_size(all)) {
        printf("%s\n", json_dumps(all, JSON_INDENT(2)));
        return EXIT_FINE;
    }
    const char *near = nearest_name(wanted, names, SECTION_COUNT);
    if (a->json) {
        struct diagnostic *d =
            complain((struct span){0, 0, 0}, "there is no section or key '%s'", wanted);
        const char *guess = near ? near : key_guess("", wanted);
        if (guess) add_help(d, "did you mean '%s'?", guess);
        return EXIT_USAGE;
    }
    if (!wanted[0]) print_all();
    if (!wanted[0] || keys_print(wanted)) return EXIT_FINE;
    return command_fail(EXIT_USAGE, "there is no section or key '%s'%s", wanted,
                        near ? text_format("; did you mean '%s'?", near)
                             : "; `planc keys` prints all");
}
