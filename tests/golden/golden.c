/* golden.c - reads the reference files of the golden tests with jansson. */
#include "golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

static void die(const char *path, const char *what)
{
    fprintf(stderr, "%s: %s\n", path, what);
    exit(1);
}

static void *need(void *p, const char *path, const char *what)
{
    if (!p)
        die(path, what);
    return p;
}

char *golden_read(const char *path, size_t *n_bytes)
{
    FILE *f = need(fopen(path, "rb"), path, "cannot be opened");
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    char *data = need(malloc((size_t)size + 1), path, "no memory");
    if (fread(data, 1, (size_t)size, f) != (size_t)size)
        die(path, "cannot be read");
    fclose(f);
    data[size] = '\0';
    *n_bytes = (size_t)size;
    return data;
}

static json_t *load_json(const char *folder, const char *name)
{
    char path[4096];
    json_error_t e;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *j = json_load_file(path, 0, &e);
    return need(j, path, e.text);
}

static int32_t *load_ids(const json_t *array, size_t *n)
{
    *n = json_array_size(array);
    int32_t *ids = need(calloc(*n + 1, sizeof *ids), "golden.json", "no memory");
    for (size_t i = 0; i < *n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return ids;
}

static void load_prompt(const char *folder, const json_t *j, golden_prompt *p)
{
    char path[4096];
    size_t n_bytes, n_margins;
    p->text =
        strdup(need((void *)json_string_value(json_object_get(j, "text")), folder, "no text"));
    p->ids = load_ids(json_object_get(j, "ids"), &p->n_ids);
    p->greedy = load_ids(json_object_get(j, "greedy"), &p->n_greedy);
    p->n_vocab = (size_t)json_integer_value(json_array_get(json_object_get(j, "shape"), 1));

    const json_t *margins = json_object_get(j, "greedy_margin");
    n_margins = json_array_size(margins);
    p->margin = need(calloc(n_margins + 1, sizeof *p->margin), folder, "no memory");
    for (size_t i = 0; i < n_margins; i++)
        p->margin[i] = json_number_value(json_array_get(margins, i));

    snprintf(path, sizeof path, "%s/%s", folder, json_string_value(json_object_get(j, "logits")));
    p->logits = (float *)(void *)golden_read(path, &n_bytes);
    if (n_bytes != p->n_ids * p->n_vocab * sizeof(float) || n_margins != p->n_greedy ||
        p->n_ids == 0 || p->n_greedy == 0)
        die(path, "does not have the size that golden.json says");
}

/* Documents lie between lines that hold the separator alone; the last newline of each is not part
 * of it. */
static void load_documents(const char *folder, golden *g)
{
    static const char separator[] = "<|endoftext|>\n";
    char path[4096];
    size_t n_bytes, i = 0;
    json_t *j = load_json(folder, "score.json");
    const json_t *rows = json_object_get(j, "documents");
    g->n_documents = json_array_size(rows);
    g->documents = need(calloc(g->n_documents + 1, sizeof *g->documents), folder, "no memory");

    snprintf(path, sizeof path, "%s/score.txt", folder);
    char *text = golden_read(path, &n_bytes);
    for (char *at = text; at < text + n_bytes && i < g->n_documents; i++) {
        char *end = strstr(at, separator);
        char *next = end ? end + sizeof separator - 1 : text + n_bytes;
        size_t n = (size_t)((end ? end : text + n_bytes) - at);
        if (n > 0 && at[n - 1] == '\n')
            n--;
        golden_document *d = &g->documents[i];
        d->text = strndup(at, n);
        d->n_bytes = n;
        d->n_tokens =
            (size_t)json_integer_value(json_object_get(json_array_get(rows, i), "n_tokens"));
        d->nll = json_number_value(json_object_get(json_array_get(rows, i), "nll"));
        at = next;
    }
    if (i != g->n_documents || i == 0)
        die(path, "has fewer documents than score.json");
    free(text);
    json_decref(j);
}

golden *golden_load(const char *folder)
{
    golden *g = need(calloc(1, sizeof *g), folder, "no memory");
    json_t *j = load_json(folder, "golden.json");
    g->n_prompts = json_array_size(j);
    g->prompts = need(calloc(g->n_prompts + 1, sizeof *g->prompts), folder, "no memory");
    for (size_t i = 0; i < g->n_prompts; i++)
        load_prompt(folder, json_array_get(j, i), &g->prompts[i]);
    if (g->n_prompts == 0)
        die(folder, "golden.json has no prompts");
    json_decref(j);
    load_documents(folder, g);
    return g;
}

void golden_free(golden *g)
{
    for (size_t i = 0; i < g->n_prompts; i++) {
        free(g->prompts[i].text);
        free(g->prompts[i].ids);
        free(g->prompts[i].logits);
        free(g->prompts[i].greedy);
        free(g->prompts[i].margin);
    }
    for (size_t i = 0; i < g->n_documents; i++)
        free(g->documents[i].text);
    free(g->prompts);
    free(g->documents);
    free(g);
}
