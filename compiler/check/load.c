/* Reads files: the plan, the files that it uses, and the texts of --set. `use` looks beside the
 * file that contains it, then in the library of the compiler. A file is read once, however often it
 * is used, and a file that uses itself is an error. Items at file level are sorted here: families,
 * clusters, constants, the plan. */
#define _XOPEN_SOURCE 700
#include "check/check.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* "" for a bare file name. */
static const char *path_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? intern_bytes(path, slash == path ? 1 : (size_t)(slash - path)) : "";
}

static const char *joined(const char *folder, const char *name)
{
    size_t n = strlen(folder);
    return n == 0 ? name : text_format("%s%s%s", folder, folder[n - 1] == '/' ? "" : "/", name);
}

static const char *real_path(const char *path)
{
    char *real = realpath(path, NULL);
    const char *kept = real ? intern(real) : NULL;
    free(real);
    return kept;
}

/* `plans` beside the compiler's folder, or where it was installed; NULL when there is none. */
const char *plan_library(void)
{
    static const char *found;
    static bool looked;
    if (looked) return found;
    looked = true;
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0) return NULL;
    exe[n] = 0;
    static const char *const places[] = {"../plans", "../share/planc/plans"};
    for (size_t i = 0; i < COUNT_OF(places) && !found; i++)
        found = real_path(joined(path_folder(exe), places[i]));
    return found;
}

/* A relative path's folder without symbolic links, so that its ".." can be taken off the text. */
const char *path_resolve(const struct checker *c, const char *text, struct span at)
{
    if (text[0] == '/') return intern(text);
    bool from_set = !strcmp(source_name(at.file), "--set");
    const char *home = from_set ? "" : path_folder(c->file.item[0].path);
    const char *folder = real_path(home[0] ? home : ".");
    if (!folder) return intern(joined(home, text));
    for (;;) {
        if (!strncmp(text, "./", 2)) {
            text += 2;
        } else if (!strncmp(text, "../", 3)) {
            text += 3;
            folder = path_folder(folder)[0] ? path_folder(folder) : "/";
        } else {
            return intern(joined(folder, text));
        }
        while (*text == '/') text++;
    }
}

/* ── Using ───────────────────────────────────────────────────────────────────── */

/* The file of a folder that `name` may have meant. */
static const char *nearest_file(const char *path)
{
    const char *folder = path_folder(path), *base = strrchr(path, '/');
    DIR *d = opendir(folder[0] ? folder : ".");
    if (!d) return NULL;
    VECTOR(const char *) names = {0};
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".plan")) PUSH(&names, intern(e->d_name));
    if (closedir(d) != 0) return NULL;
    for (int i = 1; i < names.n; i++) /* in the order of their names, not of the disk */
        for (int j = i; j > 0 && strcmp(names.item[j - 1], names.item[j]) > 0; j--) {
            const char *swap = names.item[j];
            names.item[j] = names.item[j - 1];
            names.item[j - 1] = swap;
        }
    return nearest_name(base ? base + 1 : path, names.item, names.n);
}

static bool is_plan_name(const char *path)
{
    return text_ends_with(path, ".plan") && strlen(path) > strlen(".plan");
}

const char *library_file(const char *folder, const char *name)
{
    const char *end = is_plan_name(name) ? "" : ".plan";
    const char *shelf = plan_library(), *file = text_format("%s/%s%s", folder, name, end);
    if (!shelf) return NULL;
    if (access(joined(shelf, file), R_OK) == 0) return file;
    const char *near = nearest_file(joined(shelf, file));
    return near ? text_format("%s/%s", folder, near) : NULL;
}

static void sort_items(struct checker *c, int file);

/* Reads, parses and sorts a file; false (errno) when it cannot be read. `shown` is its name in
 * messages. */
static bool load_file(struct checker *c, const char *path, const char *shown)
{
    size_t n;
    const char *bytes = text_read(path, &n);
    if (!bytes) return false;
    struct file f = {.path = intern(shown), .real = real_path(path), .loading = true};
    f.source = source_add(shown, bytes, n);
    f.items = parse_source(f.source);
    c->broken |= parse_was_torn();
    PUSH(&c->file, f);
    int index = c->file.n - 1;
    sort_items(c, index);
    c->file.item[index].loading = false;
    return true;
}

/* True when the file is there (and is read, or was). */
static bool use_file(struct checker *c, const char *path, const char *shown,
                     const struct ast *label)
{
    const char *real = real_path(path);
    if (!real) return false;
    if (!is_plan_name(shown) || !is_plan_name(real)) {
        /* its lines would be shown as mistakes, whatever they are */
        add_help(complain(label->at,
                          is_plan_name(shown) ? "%s is a link to a file that is no .plan"
                                              : "%s is no .plan file",
                          shown),
                 "use brings files whose names end in .plan");
        c->broken = true;
        return true;
    }
    for (int i = 0; i < c->file.n; i++)
        if (c->file.item[i].real == real) {
            if (c->file.item[i].loading) {
                struct diagnostic *d = complain(label->at, "%s uses itself", c->file.item[i].path);
                if (i != c->file.n - 1)
                    add_help(d, "the way round is %s, then what it uses, back to %s",
                             c->file.item[i].path, c->file.item[i].path);
            }
            return true;
        }
    if (load_file(c, path, shown)) return true;
    complain(label->at, "%s cannot be read: %s", shown, text_read_why(errno));
    return true;
}

static void use(struct checker *c, int file, const struct ast *head)
{
    if (head->n != 2 || head->kid[1]->kind != AST_STRING) {
        const char *word = head->n > 1 && head->kid[1]->text ? head->kid[1]->text : "llama";
        const char *model = library_file("models", word), *cluster = library_file("clusters", word);
        add_help(complain(head->at, "use takes one file name in double quotes"), "use \"%s\"",
                 model     ? model
                 : cluster ? cluster
                           : "models/llama.plan");
        c->broken = true; /* what it would have brought is not a second error */
        return;
    }
    const struct ast *label = head->kid[1];
    const char *text = label->text;
    const char *beside = text[0] == '/' ? text : joined(path_folder(c->file.item[file].path), text);
    /* a library file's shown name is not where it lies */
    if (c->file.item[file].real && text[0] != '/') {
        const char *real_beside = joined(path_folder(c->file.item[file].real), text);
        if (use_file(c, real_beside, beside, label)) return;
    } else if (use_file(c, beside, beside, label)) {
        return;
    }
    const char *shelf = text[0] == '/' ? NULL : plan_library();
    const char *shelved = shelf ? joined(shelf, text) : NULL;
    if (shelved && use_file(c, shelved, text, label)) return;
    struct diagnostic *d = complain(label->at, "there is no file '%s'%s", text,
                                    text[0] == '/' ? "" : " beside this one or in the library");
    const char *near = nearest_file(beside);
    if (!near && shelved) near = nearest_file(shelved);
    const char *model = library_file("models", text), *cluster = library_file("clusters", text),
               *whole = text_format("%s.plan", text);
    if (access(joined(path_folder(c->file.item[file].path), whole), R_OK) == 0 ||
        (shelf && access(joined(shelf, whole), R_OK) == 0))
        add_help(d, "use \"%s\"", whole);
    else if (model && !strcmp(model, text_format("models/%s", text)))
        add_help(d, "use \"%s\"", model);
    else if (cluster && !strcmp(cluster, text_format("clusters/%s", text)))
        add_help(d, "use \"%s\"", cluster);
    else if (near)
        add_help(d, "did you mean \"%s\"?", joined(path_folder(text), near));
    else if (!strchr(text, '/') && (model || cluster))
        add_help(d, "did you mean \"%s\"?", model ? model : cluster);
    c->broken = true;
}

/* ── File level ──────────────────────────────────────────────────────────────── */

static void add_plan(struct checker *c, int file, const struct ast *block)
{
    if (file != 0) {
        add_help(complain(block->kid[0]->at,
                          "a file that is used brings families and clusters, not a plan"),
                 "take the plan out of %s", c->file.item[file].path);
    } else if (c->plan) {
        add_note(complain(block->kid[0]->at, "a file holds one plan, this is the second"),
                 c->plan->kid[0]->at, "the first");
    } else {
        c->plan = block;
    }
}

static const char *replacing; /* the file of --cluster, or NULL */

void plan_replace_cluster(const char *path) { replacing = path; }
const char *plan_replaced_cluster(void) { return replacing; }

const char *plan_cluster_file(const char *word)
{
    if (access(word, F_OK) == 0) return word;
    const char *shelf = plan_library(), *file = text_format("clusters/%s.plan", word);
    bool known = shelf && !strchr(word, '/') && access(joined(shelf, file), R_OK) == 0;
    return known ? joined(shelf, file) : NULL;
}

static void add_rates(struct checker *c, int file, const struct ast *block)
{
    const struct ast *head = block->kid[0];
    if (head->n != 2 || !head->kid[1]->text) {
        add_help(complain(head->at, "rates take one name"), "rates hopper { … }");
        return;
    }
    for (int i = 0; i < c->rates.n; i++)
        if (c->rates.item[i].name == head->kid[1]->text) {
            add_note(
                complain(head->at, "there are two blocks of rates named %s", head->kid[1]->text),
                c->rates.item[i].block->kid[0]->at, "the first");
            return;
        }
    PUSH(&c->rates, ((struct named_block){head->kid[1]->text, block, file}));
}

static void add_trainer(struct checker *c, int file, const struct ast *block)
{
    const struct ast *head = block->kid[0];
    if (head->n != 2 || !head->kid[1]->text) {
        add_help(complain(head->at, "a trainer takes one name"), "trainer torchtitan { … }");
        return;
    }
    for (int i = 0; i < c->trainer.n; i++)
        if (c->trainer.item[i].name == head->kid[1]->text) {
            add_note(complain(head->at, "there are two trainers named %s", head->kid[1]->text),
                     c->trainer.item[i].block->kid[0]->at, "the first");
            return;
        }
    PUSH(&c->trainer, ((struct named_block){head->kid[1]->text, block, file}));
}

static void add_named(struct checker *c, int file, const struct ast *block, bool cluster)
{
    const struct ast *head = block->kid[0];
    const char *what = cluster ? "cluster" : "architecture";
    if (head->n != 2 || (head->kid[1]->kind != AST_NAME && head->kid[1]->kind != AST_STRING)) {
        complain(head->at, "%s takes one name", what);
        return;
    }
    struct named_block new = {head->kid[1]->text, block, file};
    /* the file of --cluster may call its cluster as the plan calls its own */
    if (cluster && c->loading_replacement == file) {
        if (c->replacement)
            add_note(complain(head->at, "--cluster takes a file of one cluster, %s has two",
                              c->file.item[file].path),
                     c->replacement->block->kid[0]->at, "the first");
        struct named_block *kept = TAKE(struct named_block);
        *kept = new;
        c->replacement = kept;
        return;
    }
    int n = cluster ? c->cluster.n : c->architecture.n;
    for (int i = 0; i < n; i++) {
        const struct named_block *old = cluster ? &c->cluster.item[i] : &c->architecture.item[i];
        if (old->name == new.name) {
            PUSH(&c->outside, ((struct outside){head, old->block->kid[0]}));
            return;
        }
    }
    if (cluster)
        PUSH(&c->cluster, new);
    else
        PUSH(&c->architecture, new);
}

static void add_constant(struct checker *c, int source, const struct ast *entry)
{
    for (int i = 0; i < c->constant.n; i++)
        if (c->constant.item[i].source == source && c->constant.item[i].name == entry->text) {
            add_note(complain(entry->at, "'%s' is given twice", entry->text),
                     c->constant.item[i].entry->at, "the first time");
            return;
        }
    if (entry->kid[0]->kind == AST_PATH)
        add_help(complain(entry->at, "'%s' stands outside the plan", entry->text),
                 "move it into plan { }");
    else
        PUSH(&c->constant,
             ((struct file_constant){.name = entry->text, .source = source, .entry = entry}));
}

/* "clusters.h100", "llama": the library's file of that name, if it has one; else the text as it
 * stands. */
static const char *in_library(const char *text)
{
    const char *dot = strchr(text, '/') ? NULL : strrchr(text, '.'),
               *name = dot && strcmp(dot, ".plan") ? dot + 1 : text;
    const char *model = library_file("models", name), *cluster = library_file("clusters", name);
    return strchr(text, '/') ? text : model ? model : cluster ? cluster : text;
}

static void misplaced(struct checker *c, const struct ast *head)
{
    static const char *const brings[] = {"import", "include", "from", "require", "source", "load"};
    static const char *const known[] = {"use",     "plan",  "architecture",
                                        "cluster", "rates", "trainer"};
    const char *word = head->kid[0]->text;
    if (section_find(word) != SECTION_COUNT) {
        PUSH(&c->outside, ((struct outside){head, NULL}));
        return;
    }
    if (!strcmp(word, "use")) {
        const bool named = head->n > 1 && head->kid[1]->kind == AST_STRING;
        add_help(complain(head->at, "use takes the name of a file, and no block"),
                 head->n > 2 && named
                     ? "what follows the file goes on a line of its own: use \"%s\""
                     : "use \"%s\"",
                 named ? head->kid[1]->text : "models/llama.plan");
        c->broken = true;
        return;
    }
    struct diagnostic *d = complain(head->at, "'%s' means nothing at file level", word);
    bool file = false;
    for (size_t i = 0; i < COUNT_OF(brings); i++)
        file |= !strcmp(word, brings[i]) && head->n > 1 && head->kid[1]->kind == AST_STRING;
    c->broken |= file || !strcmp(word, "Plan") || nearest_name(word, known, 2) == known[1];
    const char *near = nearest_name(word, known, (int)COUNT_OF(known));
    if (near && !strcmp(near, word))
        add_help(d, "its '{' is missing: %s %s { … }", word,
                 !strcmp(word, "plan") ? "\"title\"" : "NAME");
    else if (file)
        add_help(d, "use \"%s\"", in_library(head->kid[1]->text));
    else if (near)
        add_help(d, "did you mean '%s'?", near);
    else
        add_help(
            d,
            "a file holds: use, plan, architecture, cluster, rates, trainer, and constants (name = "
            "value)");
}

static void sort_items(struct checker *c, int file)
{
    const struct ast *items = c->file.item[file].items;
    for (int i = 0; i < items->n; i++) {
        const struct ast *item = items->kid[i], *head = item->kid[0];
        const char *word = item->kind == AST_ENTRY ? "" : head->kid[0]->text;
        if (item->kind == AST_ENTRY)
            add_constant(c, c->file.item[file].source, item);
        else if (item->kind == AST_SAY && !strcmp(word, "use"))
            use(c, file, head);
        else if (item->kind == AST_BLOCK && !strcmp(word, "plan"))
            add_plan(c, file, item);
        else if (item->kind == AST_BLOCK &&
                 (!strcmp(word, "architecture") || !strcmp(word, "cluster")))
            add_named(c, file, item, word[0] == 'c');
        else if (item->kind == AST_BLOCK && !strcmp(word, "rates"))
            add_rates(c, file, item);
        else if (item->kind == AST_BLOCK && !strcmp(word, "trainer"))
            add_trainer(c, file, item);
        else
            misplaced(c, head);
    }
}

/* What belongs in a plan and stands outside: each is said, but when there is no plan at all it is
 * one mistake. */
static void say_outside(struct checker *c)
{
    for (int i = 0; i < c->outside.n; i++) {
        const struct ast *head = c->outside.item[i].head, *first = c->outside.item[i].first;
        const char *word = head->kid[0]->text;
        if (c->broken) /* the plan around it was not understood */
            return;
        if (c->plan && first) {
            add_note(complain(head->at, "there are two %ss named %s", word, head->kid[1]->text),
                     first->at, "the first");
        } else if (c->plan) {
            add_help(complain(head->at, "'%s' means nothing at file level", word),
                     "it belongs in plan { }");
        } else {
            add_help(complain(head->at, "'%s' stands outside a plan", word),
                     c->outside.n > 1
                         ? "plan \"title\" { … } goes round it and the sections after it"
                         : "plan \"title\" { … } goes round it");
            c->broken = true;
        }
    }
}

/* The text of a --set as an entry: a key that wants a string takes it as it stands. */
static void load_setting(struct checker *c, const char *text)
{
    const char *path = intern_bytes(text, strcspn(text, "= "));
    enum key_id key = key_find_path(path);
    bool string = key != KEY_COUNT &&
                  (key_rows[key].type == KEY_STRING || key_rows[key].type == KEY_FILES) &&
                  strchr(text, '=');
    const struct ast *entry = string ? parse_setting_as_text(text) : parse_setting(text);
    if (entry)
        PUSH(&c->setting, entry);
    else
        c->broken = true;
}

/* `--set cluster=cpu`: what the library has under that name, when the plan did not bring it. */
static void load_named(struct checker *c, const struct ast *entry)
{
    bool cluster = !strcmp(entry->text, "cluster");
    const char *name = entry->kid[1]->text, *shelf = plan_library();
    if (shelf && name && !strcmp(entry->text, "trainer")) {
        for (int i = 0; i < c->trainer.n; i++)
            if (c->trainer.item[i].name == name) return;
        const char *file = text_format("trainers/%s.plan", name);
        use_file(c, joined(shelf, file), file, entry->kid[1]);
        return;
    }
    if (!shelf || !name || (!cluster && strcmp(entry->text, "model"))) return;
    for (int i = 0; i < (cluster ? c->cluster.n : c->architecture.n); i++)
        if ((cluster ? c->cluster.item[i].name : c->architecture.item[i].name) == name) return;
    const char *file = text_format("%s/%s.plan", cluster ? "clusters" : "models", name);
    use_file(c, joined(shelf, file), file, entry->kid[1]);
}

/* The cluster of --cluster's file; the plan may have brought the very file. */
static void load_replacement(struct checker *c)
{
    const char *real = real_path(replacing);
    for (int i = 1; real && i < c->file.n; i++)
        for (int k = 0; k < c->cluster.n && c->file.item[i].real == real; k++)
            if (c->cluster.item[k].file == i) {
                c->replacement = &c->cluster.item[k];
                return;
            }
    c->loading_replacement = c->file.n;
    if (!load_file(c, replacing, replacing)) {
        complain((struct span){0}, "--cluster %s cannot be read: %s", replacing, strerror(errno));
        c->broken = true;
    } else if (!c->replacement) {
        add_help(complain((struct span){c->file.item[c->loading_replacement].source, 0, 0},
                          "--cluster %s: this file has no cluster", replacing),
                 "cluster NAME { device \"…\" { kind = cuda … } }");
        c->broken = true;
    }
    c->loading_replacement = 0;
}

void load_all(struct checker *c, const char *path, const char *const *set, int n_set)
{
    if (!load_file(c, path, path)) {
        complain((struct span){0}, "%s cannot be read: %s", path, strerror(errno));
        c->broken = true;
        return;
    }
    if (replacing) load_replacement(c);
    for (int i = 0; i < n_set; i++) load_setting(c, set[i]);
    for (int i = 0; i < c->setting.n; i++) load_named(c, c->setting.item[i]);
    say_outside(c);
    if (!c->plan && !c->broken)
        add_help(complain((struct span){c->file.item[0].source, 0, 0}, "this file has no plan"),
                 "plan \"title\" { model …  cluster …  mesh …  batch … }");
}
