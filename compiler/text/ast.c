/* Builds the tree: one constructor for each kind of node, called by the grammar's actions, and the
 * two entry points of the parser. Spans are joined from the parts, so a message underlines an entry
 * and not the end of its line. Depth is counted while the tree grows and limited, so functions that
 * walk a tree may recurse. */
#include "text/lex.h"
#include "plan.tab.h"

#include <string.h>

struct ast *ast_node(enum ast_kind kind, struct span at)
{
    struct ast *a = TAKE(struct ast);
    a->kind = kind;
    a->at = at;
    return a;
}

struct ast *ast_add(struct ast *parent, struct ast *kid)
{
    if (parent->n == parent->room)
        parent->kid = vector_grow(parent->kid, &parent->room, sizeof *parent->kid);
    parent->kid[parent->n++] = kid;
    if (kid->depth >= parent->depth) parent->depth = kid->depth + 1;
    return parent;
}

struct ast *ast_more(struct ast *parent, struct ast *kid)
{
    bool empty = parent->n == 0;
    ast_add(parent, kid);
    parent->at = empty ? kid->at : span_join(parent->at, kid->at);
    return parent;
}

/* An expression deeper than the cap is cut off at the cap: the error is already there, the tree
 * stays walkable. */
static struct ast *capped(struct lex *lx, struct ast *a)
{
    if (a->depth <= DEEPEST_EXPRESSION) return a;
    lex_too_deep(lx, a->at, "this expression");
    struct ast *nothing = ast_node(AST_NUMBER, a->at);
    nothing->text = intern("0");
    return nothing;
}

/* A string's content: the quotes off, \" \\ \n \t resolved. Strings in other quotes, or in none,
 * were reported. */
static const char *unquoted(struct lex *lx, struct span at)
{
    const char *from = lx->bytes + at.from + 1, *end = lx->bytes + at.to;
    if (lx->bytes[at.from] != '"') {
        from = lex_string_meant(text_format("%.*s", at.to - at.from, lx->bytes + at.from)) + 1;
        end = from + strlen(from);
    }
    if (end > from && end[-1] == '"') end--;
    char *out = take((size_t)(end - from) + 1);
    size_t n = 0;
    for (const char *p = from; p < end; p++) {
        if (*p != '\\') {
            out[n++] = *p;
            continue;
        }
        const char *slash = p++;
        char c = p < end ? *p : 0;
        if (c == 'n' || c == 't')
            out[n++] = c == 'n' ? '\n' : '\t';
        else if (c == '"' || c == '\\')
            out[n++] = c;
        else if (c && lx->bytes[at.from] == '"')
            lex_complain(
                lx, (struct span){lx->file, (int)(slash - lx->bytes), (int)(slash - lx->bytes) + 2},
                text_format("there is no escape '\\%c'", c),
                "\\\" \\\\ \\n and \\t are the escapes of a string");
    }
    return intern_bytes(out, n);
}

struct ast *ast_leaf(struct lex *lx, enum ast_kind kind, struct span at)
{
    struct ast *a = ast_node(kind, at);
    const char *bytes = lx->bytes + at.from;
    if (kind == AST_STRING || *bytes == '"') /* a name in quotes was reported */
        a->text = unquoted(lx, at);
    else
        a->text = intern_bytes(bytes, (size_t)(at.to - at.from));
    if (kind == AST_NUMBER && (*bytes == '.' || strpbrk(a->text, ",^*")))
        a->text = intern(lex_number_meant(a->text));
    return a;
}

struct ast *ast_block(struct ast *head, struct ast *items, struct span at)
{
    return ast_add(ast_add(ast_node(AST_BLOCK, at), head), items);
}

struct ast *ast_say(struct ast *head) { return ast_add(ast_node(AST_SAY, head->at), head); }

struct ast *ast_entry(struct ast *path, struct ast *value)
{
    struct ast *a = ast_node(AST_ENTRY, span_join(path->at, value->at));
    a->text = path->text;
    return ast_add(ast_add(a, path), value);
}

/* The text of a path is made anew with each of its names. */
enum { PATH_NAMES = 32 };

struct ast *ast_path(struct lex *lx, struct ast *path, struct span name)
{
    struct ast *a = path;
    if (path->kind != AST_PATH) a = ast_add(ast_node(AST_PATH, path->at), path);
    struct ast *last = ast_leaf(lx, AST_NAME, name);
    a = ast_more(a, last);
    if (a->n == PATH_NAMES + 1)
        complain(span_join(a->at, name), "a path of more than %d names", PATH_NAMES);
    if (a->n <= PATH_NAMES) a->text = intern_format("%s.%s", path->text, last->text);
    a->depth = 1;
    return a;
}

struct ast *ast_or(struct ast *value, struct ast *other)
{
    if (value->kind != AST_ALTERNATIVES)
        value = ast_more(ast_node(AST_ALTERNATIVES, value->at), value);
    return ast_more(value, other);
}

struct ast *ast_unary(struct lex *lx, const char *op, struct ast *a, struct span at)
{
    struct ast *node = ast_node(AST_UNARY, at);
    node->text = intern(op);
    return capped(lx, ast_add(node, a));
}

struct ast *ast_binary(struct lex *lx, const char *op, struct ast *a, struct ast *b)
{
    bool range = op[0] == '.';
    struct ast *node = ast_node(range ? AST_RANGE : AST_BINARY, span_join(a->at, b->at));
    node->text = intern(op);
    return capped(lx, ast_add(ast_add(node, a), b));
}

struct ast *ast_choice(struct lex *lx, struct ast *condition, struct ast *then,
                       struct ast *otherwise)
{
    struct ast *node = ast_node(AST_CHOICE, span_join(condition->at, otherwise->at));
    return capped(lx, ast_add(ast_add(ast_add(node, condition), then), otherwise));
}

struct ast *ast_call(struct lex *lx, struct span name, struct ast *args, struct span at)
{
    args->kind = AST_CALL;
    args->at = at;
    args->text = intern_bytes(lx->bytes + name.from, (size_t)(name.to - name.from));
    return capped(lx, args);
}

struct ast *ast_list(struct lex *lx, struct ast *args, struct span at)
{
    args->at = at;
    return capped(lx, args);
}

struct ast *ast_named(struct lex *lx, struct span name, struct ast *value)
{
    struct ast *node = ast_node(AST_NAMED, span_join(name, value->at));
    node->text = intern_bytes(lx->bytes + name.from, (size_t)(name.to - name.from));
    return capped(lx, ast_add(node, value));
}

/* ── Entry points ────────────────────────────────────────────────────────── */

/* Whether any of the text was not understood, so that what is missing may be there. */
static bool torn;

bool parse_was_torn(void) { return torn; }

struct ast *parse_source(int file)
{
    struct lex lx;
    size_t n;
    const char *bytes = source_bytes(file, &n), *zero = memchr(bytes, 0, n);
    if (zero) { /* it would end a name or a path before its end */
        int at = (int)(zero - bytes);
        bool marked = n > 1 && (!memcmp(bytes, "\xff\xfe", 2) || !memcmp(bytes, "\xfe\xff", 2));
        if (marked ||
            (n > 3 && !bytes[0] != !bytes[1] && !bytes[0] == !bytes[2] && !bytes[1] == !bytes[3]))
            add_help(
                complain((struct span){0}, "%s is UTF-16, and a plan is UTF-8", source_name(file)),
                "save it as UTF-8: iconv -f UTF-16%s -t UTF-8 FILE",
                marked     ? ""
                : bytes[0] ? "LE"
                           : "BE");
        else
            complain((struct span){file, at, at + 1},
                     "this is not a text file: it holds a zero byte");
        torn = true;
        return ast_node(AST_ITEMS, (struct span){file, 0, 0});
    }
    lex_start(&lx, file);
    /* its return value means nothing after a recovery: diagnostics are counted instead */
    plan_parse(&lx);
    lex_end(&lx);
    torn = lx.torn;
    return lx.root ? lx.root : ast_node(AST_ITEMS, (struct span){file, 0, 0});
}

static int add_setting(const char *text) { return source_add("--set", text, strlen(text)); }

/* `mesh:fsdp=32`, `mesh.fsdp:32`: the last sign before the value is '=', those before it are
 * '.'. */
static bool is_setting_by_colon(int file, const char *text)
{
    size_t at = strcspn(text, ":=\"[ "), n = strlen(text);
    if (text[at] != ':' || !text[at + 1]) return false;
    char *meant = TAKE_MANY(char, n + 1);
    memcpy(meant, text, n + 1);
    size_t end = strcspn(text, "=\"[ ");
    for (size_t i = 0; i < end; i++)
        if (meant[i] == ':')
            meant[i] = text[end] != '=' && !memchr(text + i + 1, ':', end - i - 1) ? '=' : '.';
    add_help(complain((struct span){file, (int)at, (int)at + 1},
                      "':' is used neither in a path nor before a value"),
             "--set %s", meant);
    return true;
}

/* `mesh.fsdp=4,mesh.dp=2`: entries after a comma. */
static bool is_list_of_settings(int file, const char *text)
{
    struct text each = {0};
    int first = -1, depth = 0;
    bool quoted = false;
    text_add(&each, "--set ");
    for (int i = 0; text[i]; i++) {
        const char *next = text + i + 1 + strspn(text + i + 1, " ");
        size_t path = strspn(next, "abcdefghijklmnopqrstuvwxyz_0123456789.");
        const char *sign = next + path + strspn(next + path, " ");
        quoted ^= text[i] == '"';
        depth += (text[i] == '[') - (text[i] == ']');
        bool another =
            text[i] == ',' && !quoted && !depth && path && sign[0] == '=' && sign[1] != '=';
        text_add(&each, another ? " --set " : "%c", text[i]);
        if (another) {
            first = first < 0 ? i : first;
            i = (int)(next - text) - 1;
        }
    }
    if (first >= 0)
        add_help(complain((struct span){file, first, first + 1}, "--set gives one entry"),
                 "one --set for each: %s", each.bytes);
    return first >= 0;
}

struct ast *parse_setting(const char *text)
{
    int before = error_count(), file = add_setting(text);
    if (is_setting_by_colon(file, text) || is_list_of_settings(file, text)) return NULL;
    struct ast *items = parse_source(file);
    if (error_count() > before) return NULL;
    if (items->n == 1 && items->kid[0]->kind == AST_ENTRY) return items->kid[0];
    add_help(complain((struct span){file, 0, (int)strlen(text)}, "this is not one entry"),
             "--set mesh.fsdp=16");
    return NULL;
}

struct ast *parse_setting_as_text(const char *text)
{
    int file = add_setting(text);
    int equals = (int)strcspn(text, "="), n = (int)strlen(text);
    if (equals == n) {
        add_help(complain((struct span){file, 0, n}, "this is not an entry"), "--set mesh.fsdp=16");
        return NULL;
    }
    struct ast *path = ast_node(AST_PATH, (struct span){file, 0, equals});
    for (int from = 0, to; from <= equals; from = to + 1) {
        for (to = from; to < equals && text[to] != '.';) to++;
        struct ast *name = ast_node(AST_NAME, (struct span){file, from, to});
        name->text = intern_bytes(text + from, (size_t)(to - from));
        ast_add(path, name);
    }
    path->text = intern_bytes(text, (size_t)equals);
    struct ast *value = ast_node(AST_STRING, (struct span){file, equals + 1, n});
    bool quoted = n - equals > 2 && text[equals + 1] == '"' && text[n - 1] == '"';
    value->text = intern_bytes(text + equals + 1 + quoted, (size_t)(n - equals - 1 - 2 * quoted));
    return ast_entry(path, value);
}
