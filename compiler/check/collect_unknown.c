/* Messages for unknown names. A wrong name is answered with the right one and the block that it
 * belongs to; then the key that it meant is not reported as missing too. Names of other tools are
 * rows of keys_foreign.def. */
#include "check/check.h"

#include <string.h>

static const char *last_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static bool in_section(const char *path, const char *section)
{
    size_t n = strlen(section);
    return !strncmp(path, section, n) && path[n] == '.' && !strchr(path + n + 1, '.');
}

/* What the name stood for is not missed again. */
static void excuse(struct checker *c, const char *section, const char *guess)
{
    if (guess && key_find_path(guess) != KEY_COUNT)
        c->absent_is_fine[key_find_path(guess)] = true;
    else if (!strcmp(section, "cluster"))
        c->absent_is_fine[K_cluster_nodes] = true;
    else if (!strcmp(section, "schedule"))
        c->absent_is_fine[K_schedule_steps] = true;
}

/* The key of a section that takes this word. */
static enum key_id key_of_word(enum section_id s, const char *word)
{
    bool works;
    int k = 0;
    while (k < KEY_COUNT &&
           (key_rows[k].section != s || !words_find(key_rows[k].words, word, &works)))
        k++;
    return (enum key_id)k;
}

/* The hyper-parameter of the model that a name is, here or elsewhere. */
static const char *hyper_meant(struct checker *c, const char *name)
{
    const char **names = TAKE_MANY(const char *, c->declared.n + 1);
    for (int i = 0; i < c->declared.n; i++) names[i] = c->declared.item[i].name;
    return hyper_find(c, name) ? name : foreign_hyper(name, names, c->declared.n);
}

void unknown_key(struct checker *c, const char *section, const char *name, struct span at)
{
    struct diagnostic *d = complain(at, "'%s' is not a key of %s", name, section);
    const char *guess = key_guess(section, name), *advice = foreign_advice_in(section, name);
    const char *key = guess ? last_name(guess) : NULL;
    if (guess && hyper_find(c, name) && strcmp(key, name) &&
        (!in_section(guess, section) || nearest_name(name, &key, 1)))
        guess = NULL; /* what the model has under this very name is nearer than a similar one */
    enum key_id of = key_of_word(section_find(section), name);
    if (of != KEY_COUNT)
        add_help(d, "it is a value: %s = %s", key_rows[of].name, name);
    else if (guess && in_section(guess, section) &&
             key_rows[key_find_path(guess)].type == KEY_LIST &&
             strchr("0123456789", name[strlen(name) - 1]))
        add_help(d, "one list holds them all: %s = %s", last_name(guess),
                 key_rows[key_find_path(guess)].fallback);
    else if (guess && in_section(guess, section))
        add_help(d, "did you mean '%s'?", last_name(guess));
    else if (guess && !strcmp(last_name(guess), name))
        add_help(d, "it belongs in %s: %s",
                 section_rows[key_rows[key_find_path(guess)].section].path, guess);
    else if (guess)
        add_help(d, "did you mean '%s'?", guess);
    else if (advice)
        add_help(d, "%s", advice);
    else if (hyper_meant(c, name))
        add_help(d, "it belongs in model: model.%s", hyper_meant(c, name));
    else if (section_find(name) != SECTION_COUNT)
        add_help(d, "%s is a section: %s { key = value }", name, name);
    else if (foreign_section(name))
        add_help(d, "%s", foreign_section(name));
    else if (section_find(section) != SECTION_COUNT)
        add_help(d, "it has %s", section_keys(section_find(section)));
    c->hyper_misspelt |= of == KEY_COUNT && !guess && !advice && hyper_meant(c, name);
    excuse(c, section, guess);
}

void unknown_root(struct checker *c, const char *name, struct span at)
{
    const char *hyper = hyper_meant(c, name), *guess = hyper ? NULL : key_guess("", name);
    struct diagnostic *d = complain(at, "'%s' is not a key of a plan", name);
    if (guess && !strcmp(last_name(guess), name))
        add_help(d, "it belongs in %s: %s",
                 section_rows[key_rows[key_find_path(guess)].section].path, guess);
    else if (guess)
        add_help(d, "did you mean '%s'?", guess);
    else if (hyper)
        add_help(d, "it belongs in model: model.%s", hyper);
    else if (foreign_advice(name))
        add_help(d, "%s", foreign_advice(name));
    else if (foreign_section(name))
        add_help(d, "%s", foreign_section(name));
    else
        add_help(d, "a plan holds sections: %s", section_names());
    c->hyper_misspelt |= hyper != NULL;
    if (guess) excuse(c, "", guess);
}

/* `llama { … }`, `adamw { … }`, `h100 { … }`: a section's name without the section. */
static const char *section_named(const struct checker *c, const char *name)
{
    bool works;
    for (int i = 0; i < c->architecture.n; i++)
        if (c->architecture.item[i].name == name) return "model";
    for (int i = 0; i < c->cluster.n; i++)
        if (c->cluster.item[i].name == name) return "cluster";
    return words_find(section_rows[S_optimizer].takes, name, &works)  ? "optimizer"
           : words_find(section_rows[S_schedule].takes, name, &works) ? "schedule"
                                                                      : NULL;
}

/* What an entry of an unknown section means: `training.seq_len`, `parallelism.tp`. NULL: unknown.
 */
static const char *entry_meant(struct checker *c, const char *name)
{
    const char *key = foreign_key(name), *hyper = key ? NULL : hyper_meant(c, name);
    for (int k = 0; k < KEY_COUNT && !key && !hyper; k++)
        if (!strcmp(key_rows[k].name, name) && !key_is_of_row((enum key_id)k))
            key = key_guess("", name);
    if (key) return text_format("%s is %s", name, key);
    if (hyper) return text_format("%s is model.%s", name, hyper);
    return foreign_advice(name);
}

void unknown_section(struct checker *c, const char *path, const char *entry, struct span at)
{
    const char *names[SECTION_COUNT];
    int n = 0;
    for (int s = 0; s < SECTION_COUNT; s++) names[n++] = section_rows[s].path;
    if (!strcmp(path, "architecture") || !strcmp(path, "plan")) {
        add_help(complain(at, "%s stands outside the plan", path),
                 path[0] == 'p' ? "a file has one plan" : "move it after or before plan { }");
        return;
    }
    struct diagnostic *d = complain(at, "there is no section '%s'", path);
    const char *name = last_name(path), *owner = section_named(c, name),
               *foreign = foreign_section(name), *near = nearest_name(path, names, n);
    const char *guess = strchr(path, '.') || foreign || owner || near ? NULL : key_guess("", path);
    const char *dot = strrchr(path, '.'),
               *outer = dot ? intern_bytes(path, (size_t)(dot - path)) : NULL;
    const char *meant = entry ? entry_meant(c, entry) : NULL;
    if (meant && !owner && (foreign || !near))
        add_help(d, "%s", meant);
    else if (owner && outer && !strcmp(outer, owner))
        add_help(d, "%s %s { key = value }, or %s.key = value", owner, name, owner);
    else if (owner)
        add_help(d, "%s %s { … }", owner, name);
    else if (foreign)
        add_help(d, "%s", foreign);
    else if (foreign_advice(name))
        add_help(d, "%s", foreign_advice(name));
    else if (near)
        add_help(d, "did you mean '%s'?", near);
    else if (guess)
        add_help(d, "it may be a key: %s = value", guess);
    else if (outer && section_find(outer) != SECTION_COUNT)
        add_help(d, "%s holds entries: %s", outer, section_keys(section_find(outer)));
    else
        add_help(d, "sections are %s", section_names());
    c->broken = true; /* what stands in it may be what is missing elsewhere */
}

void unknown_hyper(struct checker *c, const char *name, struct span at)
{
    struct diagnostic *d =
        complain(at, "'%s' is not a hyper-parameter of %s", name, c->model->name);
    const char **names = TAKE_MANY(const char *, c->declared.n + 1);
    struct text all = {0};
    for (int i = 0; i < c->declared.n; i++) {
        names[i] = c->declared.item[i].name;
        text_add(&all, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = foreign_hyper(name, names, c->declared.n);
    near = near ? near : nearest_name(name, names, c->declared.n);
    const char *guess = near ? NULL : key_guess("", name);
    static const char *const of_mixtures[] = {"experts",    "top_k",     "expert_width",
                                              "aux_weight", "normalize", "dense_layers"};
    if (near)
        add_help(d, "did you mean '%s'?", near);
    else if (foreign_advice(name))
        add_help(d, "%s", foreign_advice(name));
    else if (guess)
        add_help(d, "it may belong in %s: %s",
                 section_rows[key_rows[key_find_path(guess)].section].path, guess);
    else if (foreign_hyper(name, of_mixtures, (int)COUNT_OF(of_mixtures)))
        add_help(d, "%s", foreign_section("moe"));
    else
        add_help(d, "it has %s", all.bytes ? all.bytes : "none");
    c->hyper_misspelt = true;
    if (guess) excuse(c, "", guess);
}

/* The key of a section that takes this word: `precision bf16` means compute. */
void suggest_key(struct diagnostic *d, enum section_id s, const struct ast *label)
{
    bool works;
    const char *word = label && label->kind == AST_NAME ? label->text : NULL;
    for (int k = 0; label && label->kind == AST_STRING && k < KEY_COUNT; k++)
        if (key_rows[k].section == s &&
            (key_rows[k].type == KEY_FILES || key_rows[k].type == KEY_STRING) &&
            !key_rows[k].missing[0]) {
            add_help(d, "%s { %s = \"%s\" }", section_rows[s].path, key_rows[k].name, label->text);
            return;
        }
    for (int k = 0; word && k < KEY_COUNT; k++) {
        const char *ours = key_rows[k].section == s ? foreign_value((enum key_id)k, word) : NULL;
        if (key_rows[k].section != s || (!ours && !words_find(key_rows[k].words, word, &works)))
            continue;
        bool set = !strcmp(source_name(label->at.file), "--set");
        add_help(d, set ? "--set %s.%s=%s" : "%s { %s = %s }", section_rows[s].path,
                 key_rows[k].name, ours ? ours : word);
        return;
    }
    add_help(d, "%s { key = value }: it has %s", section_rows[s].path, section_keys(s));
}

/* `full` in activation_checkpoint is a word of its mode; `layers 32` lacks an equals sign. */
void suggest_entry(struct checker *c, const char *prefix, const struct ast *head)
{
    const char *word = head->kid[0]->text;
    const struct ast *label = head->n > 1 ? head->kid[1] : NULL;
    struct diagnostic *d = label && label->text
                               ? complain(label->at, "'=' is missing before '%s'", label->text)
                               : complain(head->at, "'%s' alone says nothing", word);
    enum section_id s = prefix[0] ? section_find(prefix) : SECTION_COUNT;
    bool works;
    for (int k = 0; k < KEY_COUNT && s != SECTION_COUNT && head->n == 1; k++)
        if (key_rows[k].section == s && words_find(key_rows[k].words, word, &works)) {
            add_help(d, "%s = %s", key_rows[k].name, word);
            return;
        }
    if (label && label->text)
        add_help(d, label->kind == AST_STRING ? "%s = \"%s\"" : "%s = %s", word, label->text);
    else
        add_help(d, "%s = value", word);
    if (!strcmp(prefix, "model"))
        c->hyper_misspelt = true;
    else if (prefix[0])
        excuse(c, "", text_format("%s.%s", prefix, word));
}

/* ── Sections that are named as other formats name them ──────────────────────── */

/* The name that a section takes and that a word of other tools means: AdamW, CosineAnnealingLR.
 * NULL: none. */
const char *section_name_meant(const struct checker *c, enum section_id s, const char *text)
{
    const char *list[32];
    struct text low = {0};
    for (const char *p = text; *p; p++)
        text_add(&low, "%c", *p >= 'A' && *p <= 'Z' ? *p | 0x20 : *p);
    if (!low.length) return NULL;
    int n = s == S_model || s == S_cluster
                ? 0
                : words_list(section_rows[s].takes, false, list, (int)COUNT_OF(list));
    for (int i = 0; s == S_model && i < c->architecture.n && n < 32; i++)
        list[n++] = c->architecture.item[i].name;
    for (int i = 0; s == S_cluster && i < c->cluster.n && n < 32; i++)
        list[n++] = c->cluster.item[i].name;
    for (int i = 0; i < n; i++)
        if (strstr(low.bytes, list[i]) ||
            (low.length > 3 && !strncmp(list[i], low.bytes, low.length)))
            return list[i];
    return nearest_name(low.bytes, list, n);
}

bool key_names_section(enum section_id s, const char *key, const struct ast *value)
{
    static const char *const names[] = {
        "type",  "name",       "kind",      "class",      "family",         "architecture",
        "arch",  "model_type", "algorithm", "decay_type", "lr_decay_style", "lr_scheduler_type",
        "style", "scheduler",  "optimizer", "cluster",    "model",          "schedule"};
    if (!section_rows[s].takes[0] || s == S_device || s == S_weights || s == S_source ||
        (value->kind != AST_NAME && value->kind != AST_STRING))
        return false;
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (!strcmp(names[i], key)) return true;
    return false;
}

const char *complain_of_named_key(struct checker *c, enum section_id s, const char *key,
                                  const struct ast *entry)
{
    const char *text = entry->kid[1]->text, *meant = section_name_meant(c, s, text),
               *path = section_rows[s].path;
    struct diagnostic *d =
        complain(entry->at, "'%s' is not a key of %s: its name comes after '%s'", key, path, path);
    add_help(d, "%s %s { … }", path, meant ? meant : text);
    return meant ? meant : text;
}
