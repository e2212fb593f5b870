/* Texts of other formats in the place of a plan: JSON, YAML, TOML, options of a command line, and
 * names of files without quotes. Each is recognised at its first token. */
#include "text/lex_slips.h"
#include "text/language.h"
#include "plan.tab.h"

#include <string.h>

bool lex_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool lex_is_digit(char c) { return c >= '0' && c <= '9'; }

const char *lex_text_of(const struct lex *lx, struct span at)
{
    return text_format("%.*s", at.to - at.from, lx->bytes + at.from);
}

/* The first byte after blanks of this line. */
int lex_behind_blanks(const struct lex *lx, int at)
{
    while (lx->bytes[at] == ' ' || lx->bytes[at] == '\t' || lx->bytes[at] == '\r') at++;
    return at;
}

int lex_line_end(const struct lex *lx, int at)
{
    while (lx->bytes[at] && lx->bytes[at] != '\n') at++;
    return at;
}

/* How far the line is indented. */
static int line_indent(const struct lex *lx, int at)
{
    int start = at;
    while (start > 0 && lx->bytes[start - 1] != '\n') start--;
    return lex_behind_blanks(lx, start) - start;
}

int lex_behind_name(const struct lex *lx, int at)
{
    while (lex_is_letter(lx->bytes[at]) || lex_is_digit(lx->bytes[at])) at++;
    return at;
}

/* What stands from here to the end of the entry, for an example. */
const char *lex_rest_text(const struct lex *lx, int from)
{
    from = lex_behind_blanks(lx, from);
    int to = from, depth = 0;
    for (; lx->bytes[to] && !strchr(";{}#\n", lx->bytes[to]) && (depth || lx->bytes[to] != ',');
         to++)
        depth += (lx->bytes[to] == '[') - (lx->bytes[to] == ']');
    while (to > from && strchr(" \t\r", lx->bytes[to - 1])) to--;
    return to == from || to - from > 40 ? "…" : lex_text_of(lx, (struct span){lx->file, from, to});
}

/* ── Whole files in another format ───────────────────────────────────────────── */

bool lex_is_json(struct lex *lx, const struct token *t)
{
    int at = t->at.to;
    while (lx->bytes[at] == '\n' || lex_behind_blanks(lx, at) > at)
        at = lx->bytes[at] == '\n' ? at + 1 : lex_behind_blanks(lx, at);
    if (t->kind != LBRACE || lx->last.kind != NO_TOKEN || lx->bytes[at] != '"') return false;
    bool model = strstr(lx->bytes, "\"model_type\"") || strstr(lx->bytes, "\"architectures\"");
    lex_complain(
        lx, t->at, "this is JSON, and a plan is written in its own language",
        model ? text_format("it is the configuration of a model: `planc import %s -o FILE` writes "
                            "a plan from it",
                            source_name(lx->file))
              : "plan \"title\" { mesh { fsdp = 16 }  … }: names without quotes, `planc keys` "
                "shows one");
    lx->stopped = lx->torn = true;
    return true;
}

/* At file level a whole file may be in another format. */
static const char *block_example(const struct lex *lx, const char *name)
{
    return lx->n_braces ? text_format("%s { … }", name)
           : !language->is_section(name)
               ? "plan \"title\" { mesh { … }  … }; `planc keys NAME` says "
                 "what a name of another trainer is here"
               : text_format("plan \"title\" { %s { … }  … }; `planc keys` shows a whole one",
                             name);
}

/* `model:` at the end of its line, and what belongs to it on deeper lines. */
bool lex_is_yaml(struct lex *lx, struct token *t)
{
    int end = lex_line_end(lx, t->at.to), next = lex_behind_blanks(lx, t->at.to),
        indent = line_indent(lx, t->at.from);
    if (lx->bytes[next] && lx->bytes[next] != '\n' && lx->bytes[next] != '#') return false;
    struct span head = {lx->file, lx->first.at.from, t->at.to};
    const char *name = lex_text_of(lx, (struct span){lx->file, head.from, lx->last.at.to});
    struct text list = {0};
    while (lx->bytes[end]) {
        int line = end + 1, word = lex_behind_blanks(lx, line);
        bool empty = !lx->bytes[word] || lx->bytes[word] == '\n',
             item = lx->bytes[word] == '-' && lx->bytes[word + 1] == ' ';
        if (!empty &&
            (word - line < indent || (word - line == indent && !item) || lx->bytes[word] == '}'))
            break;
        if (item) text_add(&list, "%s%s", list.length ? ", " : "", lex_rest_text(lx, word + 1));
        end = lex_line_end(lx, line);
    }
    if (list.length)
        lex_slip(lx, SLIP_LIST, head, "a list is written in [ ]",
                 text_format("%s = [%s]", name, list.bytes));
    else
        lex_slip(lx, SLIP_BLOCK, head, "a block is written in { }, whatever its indentation",
                 block_example(lx, name));
    if (lx->bytes[end]) end = lex_behind_own(lx, lex_behind_blanks(lx, end + 1), end);
    lex_jump(lx, end);
    *t = (struct token){LBRACE, {lx->file, t->at.from, t->at.to}};
    lx->held = (struct token){RBRACE, {lx->file, t->at.to, t->at.to}};
    lx->torn = true;
    return true;
}

/* `[mesh]` on a line of its own, and the entries below it. */
bool lex_is_toml(struct lex *lx, struct token *t)
{
    int at = t->at.to;
    while (lx->bytes[at] == '[') at++;
    int from = at;
    while (lex_is_letter(lx->bytes[at]) || lex_is_digit(lx->bytes[at]) || lx->bytes[at] == '.')
        at++;
    int to = at;
    while (lx->bytes[at] == ']') at++;
    int next = lex_behind_blanks(lx, at);
    if (to > from && at > to && lx->bytes[next] == '{') {
        lex_slip(lx, SLIP_BLOCK, (struct span){lx->file, t->at.from, at},
                 "the name of a block is written without [ ]",
                 block_example(lx, lex_text_of(lx, (struct span){lx->file, from, to})));
        *t = (struct token){NAME, {lx->file, from, to}};
        lex_jump(lx, at);
        return false;
    }
    if (to == from || at == to ||
        (lx->bytes[next] && lx->bytes[next] != '\n' && lx->bytes[next] != '#'))
        return false;
    lex_slip(lx, SLIP_BLOCK, (struct span){lx->file, t->at.from, at}, "a block is written in { }",
             block_example(lx, lex_text_of(lx, (struct span){lx->file, from, to})));
    int end = lex_line_end(lx, at);
    while (lx->bytes[end]) {
        int word = lex_behind_blanks(lx, end + 1),
            equals = lex_behind_blanks(lx, lex_behind_name(lx, word));
        bool skipped = !lx->bytes[word] || strchr("\n#", lx->bytes[word]) ||
                       (equals > word && lx->bytes[equals] == '=');
        if (!skipped) break;
        end = lex_line_end(lx, end + 1);
    }
    if (lx->bytes[end]) end = lex_behind_own(lx, lex_behind_blanks(lx, end + 1), end);
    lex_jump(lx, end);
    lx->torn = true;
    return true;
}

/* `--fsdp 16`, `-- a remark`, `- an item`. */
bool lex_is_dash(struct lex *lx, const struct token *t)
{
    int end = lex_line_end(lx, t->at.from), at = t->at.to;
    bool two = lx->bytes[at] == '-', named = two && lex_is_letter(lx->bytes[at + 1]);
    if (named) {
        struct text name = {0};
        for (at++;
             lex_is_letter(lx->bytes[at]) || lex_is_digit(lx->bytes[at]) || lx->bytes[at] == '-';
             at++)
            text_add(&name, "%c", lx->bytes[at] == '-' ? '_' : lx->bytes[at]);
        const char *path = language->guess(name.bytes);
        lex_slip(lx, SLIP_OPTION, (struct span){lx->file, t->at.from, end},
                 "a plan has entries, not options of a command line",
                 path ? text_format("%s = %s", path, lex_rest_text(lx, at + (lx->bytes[at] == '=')))
                      : "name = value, in the section that it belongs to");
    } else if (two) {
        lex_slip(lx, SLIP_COMMENT, (struct span){lx->file, t->at.from, end},
                 "a comment does not start with '--'", "write '#'");
    } else if (lx->bytes[at] == ' ') {
        lex_slip(lx, SLIP_OPTION, (struct span){lx->file, t->at.from, end},
                 "a list is written in [ ]", "name = [a, b]");
    } else {
        return false;
    }
    lx->torn |= named || !two;
    lex_jump(lx, end);
    return true;
}

/* ── Files without quotes ────────────────────────────────────────────────────── */

/* Whether a word is one that only a file can have. */
static bool looks_like_file(const char *word, const char *key)
{
    static const char *const ends[] = {".bin",     ".plan",  ".txt", ".npy",
                                       ".json",    ".jsonl", ".idx", ".safetensors",
                                       ".parquet", ".arrow", ".zst", ".gz"};
    size_t n = strlen(word);
    bool letter = false, sign = strpbrk(word, "/*?-~") != NULL;
    for (size_t i = 0; i < n; i++) letter |= lex_is_letter(word[i]);
    if (!letter || !sign) return false;
    if (word[0] == '~' || (word[0] == '/' && word[1] != '*' && word[1] != '/') ||
        !strncmp(word, "./", 2) || !strncmp(word, "../", 3) || language->wants_text(key))
        return true;
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        if (n > strlen(ends[i]) && !strcmp(word + n - strlen(ends[i]), ends[i])) return true;
    return false;
}

bool lex_is_file(struct lex *lx, struct token *t)
{
    static const char *const brings[] = {"use", "import", "include", "source", "load"};
    const char *first =
        lx->last.kind == NAME && lx->last.at.from == lx->first.at.from && lx->n_braces == 0
            ? lex_text_of(lx, lx->last.at)
            : "";
    bool use = false;
    for (size_t i = 0; i < COUNT_OF(brings); i++) use |= !strcmp(first, brings[i]);
    bool listed = lx->n_brackets && (lx->last.kind == LBRACK || lx->last.kind == COMMA) &&
                  lx->bracket[lx->n_brackets - 1].kind == LBRACK;
    if ((!use && lx->last.kind != ASSIGN && !listed) || t->kind == STRING) return false;
    int to = t->at.from;
    while (lx->bytes[to] && !strchr(" \t\r\n;,|(){}[]\"'#", lx->bytes[to])) to++;
    struct span at = {lx->file, t->at.from, to};
    const char *word = lex_text_of(lx, at),
               *key = lx->last.kind == ASSIGN ? lex_text_of(lx, lx->before.at) : "";
    if (!(use && strpbrk(word, "/.")) && !looks_like_file(word, key)) return false;
    /* another word than use is wrong altogether, and that is said of the whole */
    if (!use || first[0] == 'u')
        lex_slip(lx, SLIP_FILE, at, "the name of a file is written in double quotes",
                 text_format("%s\"%s\"", use ? "use " : "", word));
    lex_jump(lx, to);
    *t = (struct token){STRING, at};
    return true;
}
