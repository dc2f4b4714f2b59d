/* schema.h - from a JSON schema to a program, for the files of this folder. Every schema inside
 * another becomes a rule of its own, written later: there is no recursion, and a reference to a
 * schema is a call of its rule, however it leads back.
 *
 * What a schema asks for is enforced or refused by the name of the keyword and its place. Texts may
 * be fewer than the schema allows (properties come in its order), never more. */
#ifndef BNET_SCHEMA_H
#define BNET_SCHEMA_H

#include <jansson.h>

#include "grammar/json_rules.h"

enum {
    BNET_SCHEMA_REQUIRED = 4096, /* names in a list `required` */
    BNET_SCHEMA_REF = 4096,      /* bytes of a "$ref" */
    BNET_SCHEMA_FORMATS = 11,    /* formats of strings, with what may stand beside them */
};

typedef enum bnet_schema_type { /* bits */
                                BNET_TYPE_STRING = 1,
                                BNET_TYPE_INTEGER = 2,
                                BNET_TYPE_NUMBER = 4,
                                BNET_TYPE_BOOLEAN = 8,
                                BNET_TYPE_NULL = 16,
                                BNET_TYPE_OBJECT = 32,
                                BNET_TYPE_ARRAY = 64,
} bnet_schema_type;

/* A schema whose rule is to be written. */
typedef struct bnet_schema_job {
    json_t *node;
    char *path; /* "#/properties/a", its own memory: a key of `known` */
    uint32_t rule;
} bnet_schema_job;

/* A number that is no int64, as it stands in the text: a double may be another number. */
typedef struct bnet_schema_digits {
    const json_t *number; /* a leaf of the tree */
    bnet_span text;
} bnet_schema_digits;

typedef struct bnet_schema {
    bnet_program *p;
    bnet_json_rules json;
    json_t *root;
    bnet_schema_digits *digits; /* by the addresses of the numbers */
    size_t n_digits, cap_digits;
    bnet_schema_job *jobs;
    size_t n_jobs, cap_jobs, n_path_bytes;
    uint32_t formats[BNET_SCHEMA_FORMATS]; /* their rules; 0: not written yet */
    const char *at;                        /* the path of the job that is being written */
    bnet_strmap known;                     /* path to rule */
    json_t *made;                          /* an array that keeps schemas that were put together */
    size_t n_merged;                       /* values and references that were looked at for that */
    size_t n_apart;                        /* and to see that no value is in two schemas */
} bnet_schema;

static inline bool bnet_schema_ok(const bnet_schema *s)
{
    return s->p->status == BITNET_OK;
}

/* Fails with "schema: keyword "pattern" at #/properties/a: why"; `keyword` NULL: of the whole. */
void bnet_schema_refuse(bnet_schema *s, const char *path, const char *keyword, const char *fmt, ...)
    BITNET_PRINTF(4, 5);
void bnet_schema_no_memory(bnet_schema *s);
/* The rule of a schema, which is written sooner or later. The place is `path`, and below it `more`
 * and `last` where they are not NULL. */
uint32_t bnet_schema_rule(bnet_schema *s, json_t *node, const char *path, const char *more,
                          const char *last);
/* schema_ref.c: what "#/$defs/x" names in the schema; NULL: refused. The time it takes grows with
 * the reference, of at most BNET_SCHEMA_REF bytes: who follows many counts their lengths. */
json_t *bnet_schema_find(bnet_schema *s, const char *path, const char *ref);
/* NULL: nothing, or refused as it is too long. */
json_t *bnet_schema_look_up(bnet_schema *s, const char *ref);
/* A reference that was found, as paths are written here: without the "%20" of URIs. */
void bnet_schema_place(const char *ref, char place[BNET_SCHEMA_REF + 1]);
/* Refuses "$id" below the root: within it references would begin at another place. */
void bnet_schema_check_id(bnet_schema *s, const json_t *node, const char *path);
/* Keeps a tree until the end; takes the reference over. NULL where node is NULL, after refusing. */
json_t *bnet_schema_keep(bnet_schema *s, json_t *node);
/* A copy that has all that the object or list has, or NULL after refusing: without memory, the
 * library's own leaves members out in silence. */
json_t *bnet_schema_copy(bnet_schema *s, json_t *node);
/* True for keywords that say nothing about values: "title" and so on, and those that say nothing
 * with this value. */
bool bnet_schema_is_note(const char *keyword, json_t *value);
/* The bits of `type`, or of the keywords where there is none; 0: of no special type. */
unsigned bnet_schema_types(bnet_schema *s, const json_t *node, const char *path);
/* A count such as minItems, `absent` where there is none. */
uint32_t bnet_schema_count(bnet_schema *s, const json_t *node, const char *path,
                           const char *keyword, uint32_t absent);

/* schema_tree.c: makes root and digits of the text, which outlives them; s->p has failed where they
 * are not whole. */
void bnet_schema_tree(bnet_schema *s, bnet_span text);
/* How a real of the tree is written in the text. */
bnet_span bnet_schema_digits_of(const bnet_schema *s, const json_t *real);
/* Writes a value as JSON, without blanks. */
void bnet_schema_json(bnet_schema *s, const json_t *value);

/* schema_merge.c: one schema that asks for what a node asks for without one of its keywords, and
 * for what n schemas ask for from the `first` of the list that the keyword is. NULL: refused. */
json_t *bnet_schema_merge(bnet_schema *s, json_t *node, const char *keyword, size_t first, size_t n,
                          const char *path);

/* schema_apart.c: whether it is seen that no value is in both schemas. False: there may be one, or
 * looking for it would take too long. */
bool bnet_schema_apart(bnet_schema *s, json_t *a, json_t *b);

/* The texts of a schema of one type, as a part of a rule. */
void bnet_schema_object(bnet_schema *s, const json_t *node, const char *path);
void bnet_schema_array(bnet_schema *s, const json_t *node, const char *path);
void bnet_schema_string(bnet_schema *s, const json_t *node, const char *path);
void bnet_schema_number(bnet_schema *s, const json_t *node, const char *path, bool integer);
/* The type of the values that `format` is about. */
unsigned bnet_schema_format_type(const json_t *node);
void bnet_schema_enum(bnet_schema *s, const json_t *node, const char *path);

/* regex.c: the strings, quotes included, that a regular expression matches; refused by `path` and
 * `keyword`. */
void bnet_regex_write(bnet_schema *s, const char *path, const char *keyword, bnet_span regex);

#endif
