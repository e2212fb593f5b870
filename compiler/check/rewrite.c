/* A plan with other values, as text: what its file says of a key is replaced where it stands, so
 * comments, `use` and layout stay; a key that the file does not give gets a line at the end of the
 * plan block. */
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

const char *plan_rewrite(const char *path, const char *const *set, int n_set)
{
    struct checker *c = check_begin(path, NULL, 0);
    if (!c || !c->plan) return NULL;
    size_t length;
    const int file = c->file.item[0].source;
    const char *bytes = source_bytes(file, &length);
    int32_t end = (int32_t)c->plan->at.to - 1; /* the closing brace */
    while (end > 0 && bytes[end] != '}') end--;
    change_list all = {0};
    VECTOR(const char *) key = {0}, value = {0};
    for (int i = 0; i < n_set; i++) {
        const char *equals = strchr(set[i], '=');
        const char *name = intern_bytes(set[i], (size_t)(equals - set[i]));
        const struct slot *slot = slot_of(c, name);
        const char *text = as_written(name, equals + 1);
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
    struct text lines = {0};
    text_add(&lines, "%s", "");
    for (int i = 0; i < key.n; i++) {
        bool is_auto = !strcmp(value.item[i], "auto"); /* what it is without a word */
        if (!is_auto) text_add(&lines, "    %s = %s\n", key.item[i], value.item[i]);
    }
    if (lines.length) add_change(&all, (struct change){end, end, lines.bytes});
    struct text to = {0};
    int32_t at = 0;
    for (int i = 0; i < all.n; i++) {
        text_add_bytes(&to, bytes + at, (size_t)(all.item[i].from - at));
        text_add(&to, "%s", all.item[i].text);
        at = all.item[i].to;
    }
    text_add_bytes(&to, bytes + at, length - (size_t)at);
    return to.bytes;
}
