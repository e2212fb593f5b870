/* Finds the text of each key. The cluster's file, the plan and --set may set the same keys, in
 * blocks or with paths; the later one replaces the earlier one before anything is evaluated. A key
 * given twice in one place is an error with a note at the first; an unknown name is an error that
 * names the key it may have meant. */
#include "check/check.h"

#include <string.h>

bool section_given(const struct checker *c, enum section_id s)
{
    return c->section_at[s].file != 0;
}

static void section_seen(struct checker *c, enum section_id s, enum layer layer, struct span at)
{
    if (layer != LAYER_CLUSTER && !section_given(c, s)) c->section_at[s] = at;
}

/* ── Entries ─────────────────────────────────────────────────────────────────── */

/* Two values of data.train: one list holds them all. */
static void list_files(struct diagnostic *d, const struct ast *old, const struct ast *new)
{
    const struct ast *both[] = {old->kid[1], new->kid[1]};
    struct text all = {0};
    for (int i = 0; i < 2; i++) {
        size_t n;
        bool list = both[i]->kind == AST_LIST;
        const char *bytes = source_bytes(both[i]->at.file, &n);
        text_add(&all, "%s%.*s", i ? ", " : "", both[i]->at.to - both[i]->at.from - 2 * list,
                 bytes + both[i]->at.from + list);
    }
    add_help(d, "one list holds all files: train = [%s]", all.bytes);
}

/* Both blocks of a section give the same key: one mistake, however many keys they share. */
static void complain_of_second(struct checker *c, const struct ast *old, const struct ast *new,
                               const char *path)
{
    struct second *s = &c->second;
    size_t n;
    const char *bytes = source_bytes(new->at.file, &n);
    struct span was = old->kid[1]->at, is = new->kid[1]->at;
    bool differ = was.to - was.from != is.to - is.from ||
                  memcmp(bytes + was.from, bytes + is.from, (size_t)(is.to - is.from));
    struct diagnostic *d = s->said && !differ ? NULL
                           : !s->said
                               ? complain(s->at, "a second block of %.*s, and both give %s",
                                          (int)strcspn(path, "."), path, strrchr(path, '.') + 1)
                               : NULL;
    if (!d) return;
    add_note(d, s->first, "the first");
    s->said = true;
    if (differ && !strcmp(path, "data.train")) {
        list_files(d, old, new);
        return;
    }
    add_help(
        d,
        differ ? "one of them is too much; a key that is not decided is left open: %s = %.*s | %.*s"
               : "one of them is too much",
        strrchr(path, '.') + 1, was.to - was.from, bytes + was.from, is.to - is.from,
        bytes + is.from);
}

static void fill(struct checker *c, struct slot *slot, enum layer layer, const struct ast *entry,
                 const char *path)
{
    if (slot->layer > layer) return;
    if (slot->layer == layer && layer == LAYER_PLAN && c->second.at.file &&
        slot->at.file == entry->at.file && slot->at.from < c->second.at.from) {
        complain_of_second(c, slot->entry, entry, path);
        return;
    }
    if (slot->layer == layer && layer != LAYER_SET) {
        struct diagnostic *d = complain(entry->at, "%s is given twice", path);
        add_note(d, slot->at, "the first time");
        if (!strcmp(path, "data.train")) list_files(d, slot->entry, entry);
        return;
    }
    *slot = (struct slot){.layer = layer, .entry = entry, .at = entry->at};
}

static void name_section(struct checker *c, enum section_id s, enum layer layer, const char *name,
                         struct span at)
{
    struct naming *old = &c->naming[s];
    section_seen(c, s, layer, at);
    if (old->layer > layer) return;
    if (old->layer == layer && layer == LAYER_PLAN && old->name != name) {
        struct diagnostic *d =
            complain(at, "a plan has one %s, and this is the second: %s beside %s",
                     section_rows[s].path, name, old->name);
        add_note(d, old->at, "the first");
        add_help(d, "one of them is too much");
        return;
    }
    *old = (struct naming){layer, name, at};
}

/* `schedule = cosine` as an entry; false when it is none. */
static bool name_entry(struct checker *c, enum layer layer, const char *path,
                       const struct ast *entry)
{
    enum section_id s = section_find(path);
    if (s == SECTION_COUNT) return false;
    if (s == S_weights || s == S_source) {
        s == S_weights ? group_refuse_path(entry->at) : source_refuse_path(entry->at);
        return true;
    }
    const struct ast *value = entry->kid[1];
    bool takes = section_rows[s].takes[0] && s != S_device;
    if (takes && (value->kind == AST_NAME || value->kind == AST_STRING))
        name_section(c, s, layer, value->text, value->at);
    else if (takes)
        complain(value->at, "%s takes a name", path);
    else if (s == S_precision && value->kind != AST_NAME)
        add_help(complain(entry->at, "%s is a section, not a key", path),
                 "precision.compute = bf16, or fp32; weights, gradients and moments are fp32");
    else
        suggest_key(complain(entry->at, "%s is a section, not a key", path), s, value);
    return true;
}

/* An entry by its whole path. */
static void place(struct checker *c, enum layer layer, const char *path, const struct ast *entry)
{
    struct span at = entry->kid[0]->at;
    const char *dot = strrchr(path, '.');
    if (strchr(path, '-')) /* no name, which the lexer has said */
        return;
    if (rates_place(c, path, entry)) return;
    if (name_entry(c, layer, path, entry)) return;
    if (!dot) {
        unknown_root(c, path, at);
        return;
    }
    const char *section = intern_bytes(path, (size_t)(dot - path));
    enum section_id s = section_find(section);
    if (s == SECTION_COUNT) {
        unknown_section(c, section, dot + 1, at);
        return;
    }
    if (s == S_weights || s == S_source) {
        s == S_weights ? group_refuse_path(at) : source_refuse_path(at);
        return;
    }
    section_seen(c, s, layer, entry->at);
    if (s == S_model) {
        struct declared *d = hyper_find(c, dot + 1);
        if (d)
            fill(c, &d->slot, layer, entry, path);
        else if (key_names_section(s, dot + 1, entry->kid[1]))
            name_section(c, s, layer, complain_of_named_key(c, s, dot + 1, entry), entry->at);
        else if (c->model)
            unknown_hyper(c, dot + 1, at);
        return;
    }
    enum key_id key = key_find(s, dot + 1);
    if (key == KEY_COUNT && key_names_section(s, dot + 1, entry->kid[1]))
        name_section(c, s, layer, complain_of_named_key(c, s, dot + 1, entry), entry->at);
    else if (key == KEY_COUNT)
        unknown_key(c, section, dot + 1, at);
    else
        fill(c, &c->key[key], layer, entry, path);
}

/* ── Blocks ──────────────────────────────────────────────────────────────────── */

static void collect_items(struct checker *c, enum layer layer, const char *prefix,
                          const struct ast *items);

/* The label after a section's name, for those that take one. */
static void collect_name(struct checker *c, enum layer layer, enum section_id s,
                         const struct ast *head)
{
    const struct section_row *row = &section_rows[s];
    const struct ast *label = head->n > 1 ? head->kid[1] : NULL;
    bool fits = label && head->n == 2 && (label->kind == AST_NAME || label->kind == AST_STRING);
    if (!row->takes[0]) {
        if (label && s == S_data)
            add_help(complain(label->at, "%s takes no name", row->path), "%s",
                     text_format("data { source %s%s%s { files = \"…\";  weight = 0.7 } … }", "\"",
                                 label->text ? label->text : "web", "\""));
        else if (label)
            suggest_key(complain(label->at, "%s takes no name", row->path), s, label);
    } else if (fits) {
        if (layer == LAYER_CLUSTER && s == S_cluster) return;
        name_section(c, s, layer, label->text,
                     s == S_device ? head->at : span_join(head->kid[0]->at, label->at));
    } else if (label) {
        struct span more = head->kid[head->n > 2 ? 2 : 1]->at;
        struct diagnostic *d = complain(more, "%s takes one name", row->path);
        if (label->text) add_help(d, "%s %s { … }", row->path, label->text);
        if (label->kind == AST_NAME && !(layer == LAYER_CLUSTER && s == S_cluster))
            name_section(c, s, layer, label->text, span_join(head->kid[0]->at, label->at));
    }
}

/* A section none of whose keys works: one message, whatever stands in it. */
static bool is_refused(enum section_id s, const struct ast *head)
{
    const char *missing = NULL;
    enum key_id last = KEY_COUNT;
    for (int k = 0; k < KEY_COUNT; k++) {
        if (key_rows[k].section != s) continue;
        if (!key_rows[k].missing[0]) return false;
        missing = key_rows[k].missing;
        last = (enum key_id)k;
    }
    if (!missing) return false;
    struct diagnostic *d = complain(head->at, "section %s is refused: planc cannot %s yet",
                                    section_rows[s].path, missing);
    if (key_instead(last)) add_help(d, "%s", key_instead(last));
    return true;
}

/* A second block of a section under another name: said, and not read. */
static bool is_other(struct checker *c, enum layer layer, enum section_id s, const struct ast *head)
{
    const struct naming *old = &c->naming[s];
    const char *name = head->n == 2 ? head->kid[1]->text : NULL;
    if (layer != LAYER_PLAN || !c->block_at[s].file || !name || !old->name ||
        old->layer != LAYER_PLAN || old->name == name)
        return false;
    name_section(c, s, layer, name, span_join(head->kid[0]->at, head->kid[1]->at));
    return true;
}

static void collect_block(struct checker *c, enum layer layer, const char *prefix,
                          const struct ast *block)
{
    const struct ast *head = block->kid[0];
    const char *path = intern_format("%s%s%s", prefix, prefix[0] ? "." : "", head->kid[0]->text);
    if (strchr(path, '-')) return;
    if (!strcmp(path, "cluster.link") && head->n == 2 && head->kid[1]->text) {
        path = intern_format("%s.%s", path, head->kid[1]->text);
        if (section_find(path) == SECTION_COUNT)
            add_help(complain(head->kid[1]->at, "there is no link '%s'", head->kid[1]->text),
                     "the links are node and network");
        else
            collect_items(c, layer, path, block->kid[1]);
        return;
    }
    if (!strcmp(path, "optimizer.weights")) {
        section_seen(c, S_optimizer, layer, head->at);
        group_collect(c, block);
        return;
    }
    if (!strcmp(path, "data.source")) {
        section_seen(c, S_data, layer, head->at);
        source_collect(c, block);
        return;
    }
    if (!strcmp(path, "cluster.efficiency") || !strcmp(path, "cluster.grid")) {
        rates_collect(c, block);
        return;
    }
    enum section_id s = section_find(path);
    /* in a block that was not closed */
    if (s == SECTION_COUNT && section_find(head->kid[0]->text) != SECTION_COUNT) {
        if (!c->broken)
            add_help(
                complain(head->kid[0]->at, "section %s is inside %s", head->kid[0]->text, prefix),
                "is a '}' missing before it?");
        path = head->kid[0]->text;
        s = section_find(path);
    }
    if (s == SECTION_COUNT) {
        enum key_id key = key_find_path(path);
        /* a list of YAML, which the lexer has left out */
        if (key != KEY_COUNT && c->broken && !block->kid[1]->n) return;
        if (key != KEY_COUNT)
            add_help(complain(head->at, "%s is a key, not a block", path), "%s = value",
                     head->kid[0]->text);
        else
            unknown_section(c, path, NULL, head->kid[0]->at);
        return;
    }
    section_seen(c, s, layer, head->at);
    if (is_other(c, layer, s, head) || is_refused(s, head)) return;
    collect_name(c, layer, s, head);
    bool top = layer == LAYER_PLAN && !strchr(path, '.');
    if (top && c->block_at[s].file)
        c->second = (struct second){.at = head->at, .first = c->block_at[s]};
    else if (top)
        c->block_at[s] = head->at;
    collect_items(c, layer, path, block->kid[1]);
    if (top) c->second = (struct second){0};
}

static void collect_say(struct checker *c, const char *prefix, const struct ast *say)
{
    const struct ast *head = say->kid[0];
    const char *word = head->kid[0]->text;
    if (!prefix[0] && !strcmp(word, "require")) {
        PUSH(&c->require, head);
    } else if (!prefix[0] && !strcmp(word, "use")) {
        add_help(complain(head->at, "use belongs outside the plan"), "move it before plan");
    } else {
        bool section = !prefix[0] && section_find(word) != SECTION_COUNT;
        /* `cluster h100`, and nothing of its own */
        if (section && head->n == 2 && section_rows[section_find(word)].takes[0]) {
            collect_name(c, LAYER_PLAN, section_find(word), head);
            return;
        }
        if (!section) {
            suggest_entry(c, prefix, head);
            return;
        }
        struct diagnostic *d = complain(head->at, "'%s' alone says nothing", word);
        c->broken = true; /* what it should have said is no second error */
        if (head->n > 1)
            suggest_key(d, section_find(word), head->kid[1]);
        else
            add_help(d, "%s { }", word);
        section_seen(c, section_find(word), LAYER_PLAN, head->at); /* it was meant to be there */
    }
}

static void collect_items(struct checker *c, enum layer layer, const char *prefix,
                          const struct ast *items)
{
    for (int i = 0; i < items->n; i++) {
        const struct ast *item = items->kid[i];
        if (item->kind == AST_ENTRY)
            place(c, layer, prefix[0] ? intern_format("%s.%s", prefix, item->text) : item->text,
                  item);
        else if (item->kind == AST_BLOCK)
            collect_block(c, layer, prefix, item);
        else
            collect_say(c, prefix, item);
    }
}

/* ── Names that blocks stand for ─────────────────────────────────────────────── */

/* `model { name = llama }`, which will be reported. */
static struct naming peek_in_block(const struct checker *c, enum section_id s,
                                   const struct ast *block)
{
    const struct ast *items = block->kid[1];
    for (int i = 0; i < items->n; i++) {
        const struct ast *e = items->kid[i];
        if (e->kind != AST_ENTRY || !key_names_section(s, e->text, e->kid[1])) continue;
        const char *meant = section_name_meant(c, s, e->kid[1]->text);
        return (struct naming){LAYER_PLAN, meant ? meant : e->kid[1]->text, e->at};
    }
    return (struct naming){0};
}

/* The name that the plan, or a --set, gives a section; read before the keys, which depend on it. */
static struct naming peek_name(const struct checker *c, enum section_id s)
{
    struct naming found = {0};
    const char *path = section_rows[s].path;
    const struct ast *items = c->plan ? c->plan->kid[1] : NULL;
    for (int i = 0; items && i < items->n && !found.name; i++) {
        const struct ast *item = items->kid[i], *head = item->kid[0];
        if (item->kind == AST_BLOCK && !strcmp(head->kid[0]->text, path) && head->n == 1)
            found = peek_in_block(c, s, item);
        else if ((item->kind == AST_BLOCK || item->kind == AST_SAY) &&
                 !strcmp(head->kid[0]->text, path) && head->n >= 2 && head->kid[1]->text)
            found = (struct naming){LAYER_PLAN, head->kid[1]->text,
                                    span_join(head->kid[0]->at, head->kid[1]->at)};
        else if (item->kind == AST_ENTRY && !strcmp(item->text, path) && item->kid[1]->text)
            found = (struct naming){LAYER_PLAN, item->kid[1]->text, item->at};
    }
    for (int i = 0; i < c->setting.n; i++)
        if (!strcmp(c->setting.item[i]->text, path) && c->setting.item[i]->kid[1]->text)
            found = (struct naming){LAYER_SET, c->setting.item[i]->kid[1]->text,
                                    c->setting.item[i]->at};
    return found;
}

static const struct named_block *find_block(struct checker *c, enum section_id s, struct naming n)
{
    bool cluster = s == S_cluster;
    int count = cluster ? c->cluster.n : c->architecture.n;
    const struct named_block *blocks = cluster ? c->cluster.item : c->architecture.item;
    const char **names = TAKE_MANY(const char *, count + 2);
    for (int i = 0; i < count; i++) {
        names[i] = blocks[i].name;
        if (blocks[i].name == n.name) return &blocks[i];
    }
    if (c->broken) return NULL;
    struct diagnostic *d = complain(
        n.at, cluster ? "there is no cluster '%s'" : "there is no architecture '%s'", n.name);
    const char *folder = cluster ? "clusters" : "models", *file = library_file(folder, n.name);
    const char *shelved =
        file ? intern_bytes(file + strlen(folder) + 1, strlen(file) - strlen(folder) - 6) : NULL;
    for (int i = 0; i < count && shelved; i++)
        if (names[i] == shelved) /* it was used already */
            shelved = NULL;
    if (shelved) names[count++] = shelved;
    const char *near = nearest_name(n.name, names, count);
    if (near && near == shelved && strcmp(near, n.name))
        add_help(d, "did you mean '%s'? the library has it: use \"%s\" before the plan", near,
                 file);
    else if (file && !strcmp(file, text_format("%s/%s.plan", folder, n.name)))
        add_help(d, "the library has it: use \"%s\" before the plan", file);
    else if (near)
        add_help(d, "did you mean '%s'?", near);
    else if (file)
        add_help(d, "did you mean the one of \"%s\"?", file);
    else
        add_help(d,
                 "use \"%s/%s.plan\" brings it, if there is such a file; `planc keys %s` lists the "
                 "library's",
                 folder, n.name, cluster ? "cluster" : "model");
    return NULL;
}

/* The block of a trainer's habits; its keys stand below the plan's own. */
static void collect_trainer(struct checker *c)
{
    struct naming n = peek_name(c, S_trainer);
    const char **names = TAKE_MANY(const char *, c->trainer.n + 1);
    for (int i = 0; i < c->trainer.n; i++) {
        names[i] = c->trainer.item[i].name;
        if (n.name != names[i]) continue;
        collect_items(c, LAYER_CLUSTER, "trainer", c->trainer.item[i].block->kid[1]);
        return;
    }
    if (!n.name || c->broken) return;
    struct diagnostic *d = complain(n.at, "there is no trainer '%s'", n.name);
    const char *file = library_file("trainers", n.name),
               *near = nearest_name(n.name, names, c->trainer.n);
    if (near)
        add_help(d, "did you mean '%s'?", near);
    else if (file && !strcmp(file, text_format("trainers/%s.plan", n.name)))
        add_help(d, "the library has it: use \"%s\" before the plan", file);
    else if (file)
        add_help(d, "did you mean the one of \"%s\"?", file);
    else
        add_help(d, "`planc keys trainer` lists the library's");
}

/* `--set width=512` gives a constant of the plan's file another value. */
static bool set_constant(struct checker *c, const struct ast *entry)
{
    for (int i = 0; i < c->constant.n; i++)
        if (c->constant.item[i].source == c->file.item[0].source &&
            c->constant.item[i].name == entry->text) {
            c->constant.item[i].entry = entry;
            return true;
        }
    return false;
}

/* Of the plan's own cluster, where --cluster puts another in its place, only `nodes` counts. True
 * when the item was of the cluster. */
static bool keep_nodes(struct checker *c, const struct ast *item)
{
    const struct ast *head = item->kid[0];
    if (!c->replacement) return false;
    if (item->kind == AST_ENTRY) {
        bool cluster = !strcmp(item->text, "cluster") || !strncmp(item->text, "cluster.", 8);
        return cluster && strcmp(item->text, "cluster.nodes");
    }
    if (strcmp(head->kid[0]->text, "cluster")) return false;
    for (int i = 0; item->kind == AST_BLOCK && i < item->kid[1]->n; i++) {
        const struct ast *entry = item->kid[1]->kid[i];
        if (entry->kind == AST_ENTRY && !strcmp(entry->text, "nodes"))
            place(c, LAYER_PLAN, "cluster.nodes", entry);
    }
    return true;
}

/* A --set that names another cluster leaves behind what the plan says of its own. */
static bool leaves_behind(const struct checker *c, const struct ast *item)
{
    if (c->naming[S_cluster].layer != LAYER_SET) return false;
    if (item->kind == AST_BLOCK || item->kind == AST_SAY)
        return !strcmp(item->kid[0]->kid[0]->text, "cluster") && item->kid[0]->n == 2 &&
               item->kid[0]->kid[1]->text != c->naming[S_cluster].name;
    return false;
}

void collect(struct checker *c)
{
    struct naming model = peek_name(c, S_model), cluster = peek_name(c, S_cluster);
    if (c->replacement)
        cluster =
            (struct naming){LAYER_SET, c->replacement->name, c->replacement->block->kid[0]->at};
    c->model = model.name ? find_block(c, S_model, model) : NULL;
    c->machines = c->replacement ? c->replacement
                  : cluster.name ? find_block(c, S_cluster, cluster)
                                 : NULL;
    c->naming[S_cluster].layer = cluster.layer == LAYER_SET ? LAYER_SET : LAYER_NONE;
    c->naming[S_cluster].name = cluster.name;
    hyper_declare(c);
    if (c->machines) collect_items(c, LAYER_CLUSTER, "cluster", c->machines->block->kid[1]);
    collect_trainer(c);
    const struct ast *items = c->plan ? c->plan->kid[1] : NULL;
    for (int i = 0; items && i < items->n; i++) {
        if (keep_nodes(c, items->kid[i]) || leaves_behind(c, items->kid[i])) {
            section_seen(c, S_cluster, LAYER_PLAN, items->kid[i]->kid[0]->at);
            continue;
        }
        struct ast one = {.kind = AST_ITEMS, .kid = (struct ast *[]){items->kid[i]}, .n = 1};
        collect_items(c, LAYER_PLAN, "", &one);
    }
    for (int i = 0; i < c->setting.n; i++)
        if (!set_constant(c, c->setting.item[i]))
            place(c, LAYER_SET, c->setting.item[i]->text, c->setting.item[i]);
    rates_collect_named(c);
}
