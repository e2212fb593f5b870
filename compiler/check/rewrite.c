/* A plan with other values, as text: what its file says of a key is replaced where it stands, so
 * comments, `use` and layout stay. A key that the file does not give goes to the end of its
 * section's block, or of the plan's block when the file has none. Another cluster takes the place
 * of the plan's block and of the `use` that brought it. A text in the canonical layout stays in it.
 */
#include "check/check.h"

#include <string.h>

struct change {
    int32_t from, to;
    const char *text;
};
typedef VECTOR(struct change) change_list;

static const struct slot *slot_of(struct checker *c, const char *path)
{
    enum key_id key = key_find_path(path);
    if (key != KEY_COUNT) return &c->key[key];
    const struct declared *d = !strncmp(path, "model.", 6) ? hyper_find(c, path + 6) : NULL;
    return d ? &d->slot : NULL;
}

/* --set needs no quotes around a text. */
static const char *as_written(const char *path, const char *value)
{
    enum key_id key = key_find_path(path);
    bool text = key != KEY_COUNT && (key_rows[key].type == KEY_STRING ||
                                     (key_rows[key].type == KEY_FILES && value[0] != '['));
    return text && value[0] != '"' ? text_format("\"%s\"", value) : value;
}

/* Replaces what was to be put at the same place: the last --set counts. */
static void add_change(change_list *all, struct change x)
{
    for (int i = 0; i < all->n; i++)
        if (all->item[i].from == x.from && all->item[i].to == x.to) {
            all->item[i].text = x.text;
            return;
        }
    int i = all->n;
    PUSH(all, x);
    for (; i > 0 && all->item[i - 1].from > x.from; i--) all->item[i] = all->item[i - 1];
    all->item[i] = x;
}

/* Where new entries go: before the closing brace of a block. */
struct place {
    int32_t at;
    const char *indent; /* of a line of its own; NULL: behind the entries of the brace's line */
    bool empty;         /* nothing is on that line before it */
};

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static struct place end_of(const char *bytes, struct span block)
{
    int32_t brace = (int32_t)block.to - 1;
    while (brace > 0 && bytes[brace] != '}') brace--;
    int32_t last = brace;
    while (last > 0 && is_blank(bytes[last - 1])) last--;
    if (last == 0 || bytes[last - 1] == '\n')
        return (struct place){.at = last,
                              .indent = text_format("%.*s    ", (int)(brace - last), bytes + last)};
    return (struct place){.at = last, .empty = bytes[last - 1] == '{' || bytes[last - 1] == ';'};
}

/* The block of the file that a key's section has; the plan's otherwise. *name: what the key is
 * called there. */
static struct span block_of(const struct checker *c, const char *path, const char **name)
{
    enum key_id key = key_find_path(path);
    *name = path;
    /* neither a key nor a hyper-parameter: a rate of the cluster, which has no block in a plan */
    if (key == KEY_COUNT && strncmp(path, "model.", 6)) return c->plan->at;
    const char *section = key == KEY_COUNT ? "model" : section_rows[key_rows[key].section].path;
    const struct ast *items = c->plan->kid[1];
    for (int i = 0; i < items->n; i++) {
        const struct ast *block = items->kid[i];
        if (block->kind != AST_BLOCK || strcmp(block->kid[0]->kid[0]->text, section)) continue;
        *name = path + strlen(section) + 1;
        return block->at;
    }
    return c->plan->at;
}

static void add_entry(change_list *all, const char *bytes, struct span block, const char *name,
                      const char *value)
{
    struct place at = end_of(bytes, block);
    const char *entry = at.indent  ? text_format("%s%s = %s\n", at.indent, name, value)
                        : at.empty ? text_format(" %s = %s", name, value)
                                   : text_format(";  %s = %s", name, value);
    for (int i = 0; i < all->n; i++)
        if (all->item[i].from == at.at &&
            all->item[i].to == at.at) { /* behind what was put there */
            if (!at.indent) entry = text_format(";  %s = %s", name, value);
            all->item[i].text = text_format("%s%s", all->item[i].text, entry);
            return;
        }
    add_change(all, (struct change){at.at, at.at, entry});
}

/* ── another cluster ─────────────────────────────────────────────────────────── */

static bool is_setting_of_cluster(const char *set)
{
    return !strncmp(set, "cluster=", 8) ||
           (!strncmp(set, "cluster.", 8) && !memchr(set + 8, '.', strcspn(set + 8, "=")));
}

/* "cluster h100 { nodes = 8 }", with the keys of its own that are set. */
static const char *cluster_block(const char *name, const char *const *set, int n_set)
{
    struct text t = {0};
    VECTOR(const char *) key = {0}, value = {0};
    for (int i = 0; i < n_set; i++) {
        if (!is_setting_of_cluster(set[i]) || set[i][7] == '=') continue;
        size_t n = strcspn(set[i], "=");
        const char *one = intern_bytes(set[i] + 8, n - 8);
        int k = 0;
        while (k < key.n && key.item[k] != one) k++;
        if (k == key.n) {
            PUSH(&key, one);
            PUSH(&value, NULL);
        }
        value.item[k] = set[i] + n + 1;
    }
    text_add(&t, "cluster %s {", name);
    for (int k = 0; k < key.n; k++)
        text_add(&t, "%s%s = %s", k ? ";  " : " ", key.item[k], value.item[k]);
    text_add(&t, " }");
    return t.bytes;
}

/* The words in quotes behind the `use` that brought a file; NULL: none did. */
static const struct ast *use_of(const struct checker *c, const struct file *f)
{
    const struct ast *items = c->file.item[0].items;
    for (int i = 0; i < items->n; i++) {
        const struct ast *say = items->kid[i];
        if (say->kind == AST_SAY && say->kid[0]->n == 2 &&
            !strcmp(say->kid[0]->kid[0]->text, "use") &&
            text_ends_with(f->path, say->kid[0]->kid[1]->text))
            return say->kid[0]->kid[1];
    }
    return NULL;
}

static void exchange_cluster(const struct checker *c, const char *bytes, change_list *all,
                             const struct other_cluster *other, const char *const *set, int n_set)
{
    const struct ast *items = c->plan->kid[1];
    const char *block = cluster_block(other->name, set, n_set);
    bool placed = false;
    for (int i = 0; i < items->n; i++) {
        const struct ast *item = items->kid[i], *head = item->kid[0];
        bool block_or_say = item->kind == AST_BLOCK || item->kind == AST_SAY,
             own = block_or_say ? !strcmp(head->kid[0]->text, "cluster")
                                : item->kind == AST_ENTRY && !strcmp(item->text, "cluster");
        if (!own) continue;
        add_change(all, (struct change){(int32_t)item->at.from, (int32_t)item->at.to, block});
        placed = true;
    }
    if (!placed) {
        struct place at = end_of(bytes, c->plan->at);
        add_change(all, (struct change){at.at, at.at, text_format("    %s\n", block)});
    }
    if (!other->use) return;
    const struct ast *use =
        c->machines && c->machines->file ? use_of(c, &c->file.item[c->machines->file]) : NULL;
    const char *text = text_format("\"%s\"", other->use);
    if (use)
        add_change(all, (struct change){(int32_t)use->at.from, (int32_t)use->at.to, text});
    else {
        int32_t line = (int32_t)c->plan->at.from;
        while (line > 0 && bytes[line - 1] != '\n') line--;
        add_change(all, (struct change){line, line, text_format("use %s\n\n", text)});
    }
}

/* In the canonical layout when `before` is. */
static const char *laid_out(const char *path, int before, const char *text)
{
    size_t length;
    const char *bytes = source_bytes(before, &length), *canonical = format_source(before);
    if (strlen(canonical) != length || memcmp(canonical, bytes, length)) return text;
    int after = source_add(path, text, strlen(text)), errors = error_count();
    parse_source(after);
    return error_count() > errors ? text : format_source(after);
}

const char *plan_rewrite(const char *path, const char *const *set, int n_set,
                         const struct other_cluster *other)
{
    const char *replaced = plan_replaced_cluster();
    plan_replace_cluster(NULL); /* the file's own words */
    struct checker *c = check_begin(path, NULL, 0);
    plan_replace_cluster(replaced);
    if (!c || !c->plan) return NULL;
    size_t length;
    const int file = c->file.item[0].source;
    const char *bytes = source_bytes(file, &length);
    change_list all = {0};
    VECTOR(const char *) key = {0}, value = {0};
    for (int i = 0; i < n_set; i++) {
        const char *equals = strchr(set[i], '=');
        const char *name = intern_bytes(set[i], (size_t)(equals - set[i]));
        const struct slot *slot = slot_of(c, name);
        const char *text = as_written(name, equals + 1);
        if (other && is_setting_of_cluster(set[i])) continue;
        if (slot && slot->layer == LAYER_PLAN && slot->entry->at.file == file) {
            struct span at = slot->entry->kid[1]->at;
            add_change(&all, (struct change){(int32_t)at.from, (int32_t)at.to, text});
            continue;
        }
        int k = 0;
        while (k < key.n && key.item[k] != name) k++;
        if (k == key.n) {
            PUSH(&key, name);
            PUSH(&value, text);
        }
        value.item[k] = text;
    }
    if (other) exchange_cluster(c, bytes, &all, other, set, n_set);
    for (int i = 0; i < key.n; i++) {
        const char *name;
        const struct span block = block_of(c, key.item[i], &name);
        bool is_auto = !strcmp(value.item[i], "auto"); /* what it is without a word */
        if (!is_auto) add_entry(&all, bytes, block, name, value.item[i]);
    }
    struct text to = {0};
    int32_t at = 0;
    for (int i = 0; i < all.n; i++) {
        text_add_bytes(&to, bytes + at, (size_t)(all.item[i].from - at));
        text_add(&to, "%s", all.item[i].text);
        at = all.item[i].to;
    }
    text_add_bytes(&to, bytes + at, length - (size_t)at);
    return laid_out(path, file, to.bytes);
}
