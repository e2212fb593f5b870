/* Calls of Debian's libsentencepiece.so.0, by their names in C++. Its classes are passed by address
 * and their results through a hidden first argument, as the C++ ABI of x86-64 says. A processor is
 * a table of functions and some pointers; its room here is larger than any version's. */
#define _GNU_SOURCE
#include "commands/sentencepiece.h"
#include "base/base.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROCESSOR_BYTES = 4096 };

/* A status is one pointer, none when all is well; a std::string begins with its text. */
struct status {
    void *error;
};
struct string {
    const char *text;
    size_t n;
    char inside[16];
};
static struct {
    void (*construct)(void *processor);
    void (*load)(struct status *, void *processor, size_t n, const char *path);
    void (*encode)(struct status *, const void *processor, size_t n, const char *text,
                   int32_t **ids);
    int (*size)(const void *processor);
    int (*end_token)(const void *processor);
    void (*text_of)(struct string *, const struct status *);
} library;

#define VIEW "St17basic_string_viewIcSt11char_traitsIcEE"
#define CLASS "13sentencepiece22SentencePieceProcessor"

static const char *find(void)
{
#ifndef __x86_64__
    return "data tokenize calls sentencepiece on x86-64 alone; docs/data.md has scripts for Python";
#else
    const struct {
        void *to;
        const char *name;
    } row[] = {{&library.construct, "_ZN" CLASS "C1Ev"},
               {&library.load, "_ZN" CLASS "4LoadE" VIEW},
               {&library.encode, "_ZNK" CLASS "6EncodeE" VIEW "PSt6vectorIiSaIiEE"},
               {&library.size, "_ZNK" CLASS "12GetPieceSizeEv"},
               {&library.end_token, "_ZNK" CLASS "6eos_idEv"},
               {&library.text_of, "_ZNK13sentencepiece4util6Status8ToStringB5cxx11Ev"}};
    void *handle = dlopen("libsentencepiece.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return text_format("the library sentencepiece is not here: apt-get install "
                           "libsentencepiece0 (%s)",
                           dlerror());
    for (size_t i = 0; i < COUNT_OF(row); i++) {
        void *at = dlsym(handle, row[i].name);
        if (!at)
            return text_format("libsentencepiece.so.0 is of a version that planc does not know: it "
                               "has no %s; Debian 12 has one that works",
                               row[i].name);
        memcpy(row[i].to, &at, sizeof at);
    }
    return NULL;
#endif
}

static const char *reason(const struct status *status, const char *path)
{
    struct string text;
    if (!status->error) return NULL;
    library.text_of(&text, status);
    return text_format("%s: %.*s", path, (int)strcspn(text.text, "\n"), text.text);
}

const char *sentencepiece_open(struct sentencepiece *s, const char *model)
{
    struct status status = {0};
    *s = (struct sentencepiece){.processor = take(PROCESSOR_BYTES)};
    struct stat file;
    if (access(model, R_OK)) return text_format("%s: cannot be read", model);
    /* the library would wait, read without end, or abort */
    if (stat(model, &file) || !S_ISREG(file.st_mode) || file.st_size > INT32_MAX)
        return text_format("%s: no file that a model of sentencepiece could be", model);
    const char *why = find();
    if (why) return why;
    library.construct(s->processor);
    library.load(&status, s->processor, strlen(model), model);
    if (status.error) return reason(&status, model);
    s->vocabulary = library.size(s->processor);
    s->end_token = library.end_token(s->processor);
    return NULL;
}

const char *sentencepiece_encode(struct sentencepiece *s, const char *text, size_t n)
{
    struct status status = {0};
    library.encode(&status, s->processor, n, text, &s->ids);
    return reason(&status, "sentencepiece");
}
