/* `planc checkpoint DIR`: which checkpoints a folder has, and whether each can be resumed or
 * exported. Only manifests and sizes are read, so that it is quick whatever they hold; a trainer
 * that resumes, and `planc export`, check every byte. */
#include "base/escape.h"
#include "commands/command.h"
#include "commands/saved.h"

#include <string.h>

static const char *word_of(const json_t *object, const char *key)
{
    const char *word = json_string_value(json_object_get(object, key));
    return word ? word : "";
}

static const char *mesh_of(const struct saved *s)
{
    const json_t *mesh = json_object_get(s->manifest, "mesh");
    return text_format("%ldx%ld", saved_whole(mesh, "fsdp"), saved_whole(mesh, "dp"));
}

/* A model's name, and how many numbers it has. */
static const char *model_of(const struct saved *s)
{
    const json_t *plan = json_object_get(s->manifest, "plan");
    return word_of(json_object_get(plan, "mathematics"), "model");
}

static int64_t parameters_of(const struct saved *s)
{
    const json_t *parts = json_object_get(s->manifest, "parts");
    int64_t sum = 0;
    for (size_t i = 0; i < json_array_size(parts); i++)
        sum += saved_whole(json_array_get(parts, i), "elements");
    return sum;
}

static void print_json(const char *folder, const saved_list *all)
{
    struct text t = {0};
    text_add(&t, "{\n  \"folder\": ");
    escape_json(&t, folder);
    text_add(&t, ",\n  \"checkpoints\": [");
    for (int i = 0; i < all->n; i++) {
        const struct saved *s = &all->item[i];
        const json_t *m = s->manifest, *plan = json_object_get(m, "plan"),
                     *mesh = json_object_get(m, "mesh");
        text_add(&t, "%s\n    {\"name\": ", i ? "," : "");
        escape_json(&t, s->name);
        text_add(&t, ", \"run\": %ld, \"step\": %ld, \"complete\": %s, \"bytes\": %ld", s->run,
                 s->step, m ? "true" : "false", s->bytes);
        if (!m) {
            text_add(&t, ", \"why\": ");
            escape_json(&t, s->why);
        } else {
            text_add(&t, ", \"saved\": ");
            escape_json(&t, word_of(m, "saved"));
            text_add(&t, ",\n     \"fsdp\": %ld, \"dp\": %ld, \"restarts\": %ld, \"sample\": %ld",
                     saved_whole(mesh, "fsdp"), saved_whole(mesh, "dp"),
                     saved_whole(json_object_get(m, "counters"), "restarts"),
                     saved_whole(json_object_get(m, "counters"), "sample"));
            text_add(&t, ", \"parameters\": %ld, \"model\": ", parameters_of(s));
            escape_json(&t, model_of(s));
            text_add(&t, ",\n     \"title\": ");
            escape_json(&t, word_of(plan, "title"));
            text_add(&t, ", \"plan\": ");
            escape_json(&t, word_of(plan, "file"));
        }
        text_add(&t, "}");
    }
    text_add(&t, "%s]\n}\n", all->n ? "\n  " : "");
    fputs(t.bytes, stdout);
}

static void print_text(const char *folder, const saved_list *all)
{
    if (!all->n) {
        printf("%s: no checkpoint\n", printable_text(folder));
        return;
    }
    size_t width = 0;
    for (int i = 0; i < all->n; i++)
        if (strlen(all->item[i].name) > width) width = strlen(all->item[i].name);
    printf("%-*s %9s  %-20s %14s  %-8s  %s\n", (int)width, "checkpoint", "step", "saved", "size",
           "fsdpxdp", "plan");
    for (int i = 0; i < all->n; i++) {
        const struct saved *s = &all->item[i];
        printf("%-*s %9ld  ", (int)width, s->name, s->step);
        if (!s->manifest)
            printf("%s\n", printable_text(s->why));
        else
            printf("%-20s %14s  %-8s  %s (%s, %s parameters)\n",
                   printable_text(word_of(s->manifest, "saved")), text_bytes(s->bytes), mesh_of(s),
                   printable_text(word_of(json_object_get(s->manifest, "plan"), "title")),
                   printable_text(model_of(s)), text_count(parameters_of(s)));
    }
}

int command_checkpoint(const struct arguments *a)
{
    if (a->word.n != 1)
        return command_fail(EXIT_USAGE, "checkpoint takes the folder of a run's checkpoints");
    json_in_arena();
    const char *folder = a->word.item[0];
    saved_list all = {0};
    if (saved_is_checkpoint(folder))
        PUSH(&all, saved_read(folder));
    else {
        const char *why = saved_list_read(folder, &all);
        if (why) return command_fail(EXIT_ENVIRONMENT, "%s", why);
    }
    if (a->json)
        print_json(folder, &all);
    else
        print_text(folder, &all);
    return EXIT_FINE;
}
