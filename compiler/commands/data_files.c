/* Whether the token files of a plan are there, and are what it says. A plan is often checked where
 * its data is not, so nothing here is an error: the trainer refuses at its start what is wrong. */
#define _XOPEN_SOURCE 700
#include "commands/command.h"
#include "formats/recognise.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files of one pattern that are looked at. */
enum { LOOKED_AT = 64 };

static int64_t vocabulary_of(const struct plan *p)
{
    for (int i = 0; i < p->n_hyper; i++)
        if (!strcmp(p->hyper[i].name, "vocab") && constant_is_whole(&p->hyper[i].value))
            return p->hyper[i].value.top;
    return 0;
}

static void check_file(const struct plan *p, const char *path)
{
    struct stat st;
    char why[512];
    if (stat(path, &st)) {
        warn(p->at.data, "%s: %s", path, strerror(errno));
        return;
    }
    if (!S_ISREG(st.st_mode)) {
        warn(p->at.data, "%s is no file of tokens", path);
        return;
    }
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    unsigned char *head = take(RECOGNISE_BYTES);
    ssize_t n = file < 0 ? -1 : pread(file, head, RECOGNISE_BYTES, 0);
    if (n < 0)
        warn(p->at.data, "%s: %s", path, strerror(errno));
    else if (recognise(head, (size_t)n, st.st_size, 1 << p->data_format, vocabulary_of(p), why,
                       sizeof why) != RECOGNISED_FINE)
        warn(p->at.data, "%s: %s", path, why);
    else if (st.st_size % (1 << p->data_format))
        warn(p->at.data, "%s: %ld bytes are no whole number of tokens of %d bytes", path,
             (long)st.st_size, 1 << p->data_format);
    if (file >= 0) (void)close(file); /* only read */
}

void data_files_check(const struct plan *p)
{
    for (int i = 0; i < p->n_data_train; i++) {
        const char *name = p->data_train[i];
        glob_t found = {0};
        if (!access(name, F_OK) || !strpbrk(name, "*?[")) {
            check_file(p, name);
            continue;
        }
        int rc = glob(name, 0, NULL, &found);
        if (rc) warn(p->at.data, "%s: no such file", name);
        for (size_t k = 0; !rc && k < found.gl_pathc && k < LOOKED_AT; k++)
            check_file(p, found.gl_pathv[k]);
        if (!rc) globfree(&found);
    }
}
