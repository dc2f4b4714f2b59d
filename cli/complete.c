/* complete.c - what Tab may mean in a line of a chat: the name of a command, a file after a command
 * that takes one, a setting after /set. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "line.h"

static void offer(completion *c, const char *word, const char *typed)
{
    if (strncmp(word, typed, strlen(typed)) != 0)
        return;
    c->words = xrealloc(c->words, (c->n + 1) * sizeof *c->words);
    c->words[c->n++] = xstrdup(word);
}

static void offer_commands(completion *c, const char *typed)
{
    const char *name, *argument;
    for (size_t i = 0; slash_command_at(i, &name, &argument); i++)
        if (slash_command_help(i)) /* other names for the same are not offered */
            offer(c, name, typed);
    c->spaced = true;
}

static void offer_settings(completion *c, const char *typed)
{
    const option *o;
    for (size_t i = 0; (o = setting_at(i)); i++)
        offer(c, o->name, typed);
    c->spaced = true;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A name that a line cannot hold, and that must not reach the terminal. */
static bool has_controls(const char *name)
{
    while (*name && (unsigned char)*name >= 0x20 && *name != 0x7f)
        name++;
    return *name != '\0';
}

/* Names in the folder of `typed`; folders get a slash. Hidden ones only if a dot was typed. */
static void offer_files(completion *c, const char *typed)
{
    const char *slash = strrchr(typed, '/'), *base = slash ? slash + 1 : typed;
    char *before = xmemdup(typed, (size_t)(base - typed)), *folder = expand_home(before);
    DIR *d = opendir(*folder ? folder : ".");
    struct dirent *entry;
    while (d && (entry = readdir(d))) {
        const char *name = entry->d_name;
        bool hidden = name[0] == '.' && base[0] != '.';
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || hidden || has_controls(name))
            continue;
        char *path = xformat("%s%s", folder, name);
        char *word = xformat("%s%s%s", before, name, is_folder(path) ? "/" : "");
        offer(c, word, typed);
        free(path);
        free(word);
    }
    if (d)
        closedir(d);
    c->n_hidden = (size_t)(base - typed);
    free(before);
    free(folder);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool takes_file(const char *typed, size_t n)
{
    const char *name, *argument;
    for (size_t i = 0; slash_command_at(i, &name, &argument); i++)
        if (strlen(name) == n && memcmp(name, typed, n) == 0)
            return strstr(argument, "FILE") != NULL;
    return false;
}

void complete_line(const char *line, size_t n, completion *out)
{
    char *typed = xmemdup(line, n);
    size_t n_command = strcspn(typed, " \t");
    const char *argument = typed + n_command + strspn(typed + n_command, " \t");
    *out = (completion){.n_typed = strlen(argument)};
    if (typed[0] != '/') {
        out->n_typed = 0;
    } else if (!typed[n_command]) {
        out->n_typed = n;
        offer_commands(out, typed);
    } else if (n_command == 4 && memcmp(typed, "/set", 4) == 0) {
        offer_settings(out, argument);
    } else if (takes_file(typed, n_command)) {
        offer_files(out, argument);
    }
    if (out->n)
        qsort(out->words, out->n, sizeof *out->words, by_text);
    free(typed);
}

/* Where the words part inside a character, they part before it. */
size_t complete_shared(const completion *c)
{
    if (c->n == 0)
        return 0;
    const char *first = c->words[0], *last = c->words[c->n - 1]; /* sorted: these differ most */
    size_t n = 0;
    while (first[n] && first[n] == last[n])
        n++;
    while (n && ((unsigned char)first[n] & 0xc0) == 0x80)
        n--;
    return n;
}

void complete_free(completion *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->words[i]);
    free(c->words);
    *c = (completion){0};
}
