/* schema_string.c - strings of a schema: of a pattern, of a format, or of a length.
 *
 * What is written for a format is less than the format allows. Its length is bounded, so that the
 * bounds of a schema may say no less. */
#include "grammar/schema.h"

/* ---- dates ---- */

#define MONTH_DAY                                                                                  \
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"                 \
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
#define FOURTHS "(0[48]|[2468][048]|[13579][26])"
#define YEAR    "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define DATE    "(" YEAR "-" MONTH_DAY "|([0-9]{2}" FOURTHS "|" FOURTHS "00)-02-29)"
#define CLOCK   "([01][0-9]|2[0-3]):[0-5][0-9]"
#define SECOND  CLOCK ":[0-5][0-9](\\.[0-9]{1,6})?"
#define UTC     SECOND "Z"
#define TIME    SECOND "(Z|[-+]" CLOCK ")"

/* Of RFC 3339: a unit is followed by the next smaller one. */
#define COUNT    "(0|[1-9][0-9]{0,3})"
#define SECONDS  COUNT "S"
#define MINUTES  COUNT "M(" SECONDS ")?"
#define HOURS    COUNT "H(" MINUTES ")?"
#define DAYS     COUNT "D"
#define MONTHS   COUNT "M(" DAYS ")?"
#define YEARS    COUNT "Y(" MONTHS ")?"
#define HOURS_ON "T(" HOURS "|" MINUTES "|" SECONDS ")"
#define DURATION "P((" YEARS "|" MONTHS "|" DAYS ")(" HOURS_ON ")?|" HOURS_ON "|" COUNT "W)"

/* ---- addresses ---- */

#define HEX   "[0-9a-fA-F]"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4  "(" OCTET "\\.){3}" OCTET

/* Behind "::" up to n groups may come; before it n groups came, each with its colon. */
#define GROUP   HEX "{1,4}"
#define REST(n) "(" GROUP "(:" GROUP "){0," n "})?"
#define AFTER_6 GROUP ":(:|" GROUP ")"
#define AFTER_5 GROUP ":(:(" GROUP ")?|" AFTER_6 ")"
#define AFTER_4 GROUP ":(:" REST("1") "|" AFTER_5 ")"
#define AFTER_3 GROUP ":(:" REST("2") "|" AFTER_4 ")"
#define AFTER_2 GROUP ":(:" REST("3") "|" AFTER_3 ")"
#define AFTER_1 GROUP ":(:" REST("4") "|" AFTER_2 ")"
#define IPV6    "(::" REST("6") "|" GROUP ":(:" REST("5") "|" AFTER_1 "))"

/* A name of at most 253 characters: few long labels or more short ones, no two hyphens in a row (so
 * no "xn--"), the last one not a number. LABEL("n") has at most 1 + 2 n characters. */
#define ALNUM        "[0-9A-Za-z]"
#define LABEL(more)  ALNUM "(-?" ALNUM "){0," more "}"
#define LAST(more)   "[A-Za-z](-?" ALNUM "){0," more "}"
#define LONG_LABELS  "(" LABEL("31") "\\.){0,3}" LAST("30")
#define SHORT_LABELS "(" LABEL("17") "\\.){4,6}" LAST("17")
#define HOST         "(" LONG_LABELS "|" SHORT_LABELS ")"

/* At most 63 + 1 + 144 + 18 characters. */
#define LOCAL ALNUM "(['.]?[0-9A-Za-z_+-]){0,31}"
#define EMAIL LOCAL "@((" LABEL("31") "\\.){1,2}|(" LABEL("17") "\\.){3,4})[A-Za-z]{2,18}"

/* Of http and https, at most 8 + 253 + 6 + 841 + 571 + 301 characters. */
#define IN_URI(more) "([!$&'()*+,.0-9:;=@A-Z_a-z~" more "-]|%" HEX "{2})"
#define PORT         "(:([1-9][0-9]{0,3}|[1-5][0-9]{4}))?"
#define PATH         "(/" IN_URI("/") "{0,280})?"
#define QUERY        "(\\?" IN_URI("/?") "{0,190})?"
#define FRAGMENT     "(#" IN_URI("/?") "{0,100})?"
#define URI          "https?://(" HOST "|" IPV4 ")" PORT PATH QUERY FRAGMENT

/* ---- formats ---- */

/* Patterns that Zod 4 writes beside formats: all that is written for the format matches them. */
#define ZOD_DAY                                                                                    \
    "^(?:(?:\\d\\d[2468][048]|\\d\\d[13579][26]|\\d\\d0[48]|[02468][048]00|[13579][26]00)"         \
    "-02-29|\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])"                                 \
    "|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|(?:02)-(?:0[1-9]|1\\d|2[0-8])))"
#define ZOD_CLOCK      "(?:[01]\\d|2[0-3]):[0-5]\\d"
#define ZOD_TIME(zone) "T(?:" ZOD_CLOCK "(?::[0-5]\\d(?:\\.\\d+)?)?(?:" zone "))$"
#define ZOD_OFFSET     "Z|([+-]" ZOD_CLOCK ")"
#define ZOD_HOST                                                                                   \
    "^(?=.{1,253}\\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"                              \
    "(?:\\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\\.?$"
#define ZOD_EMAIL                                                                                  \
    "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+"   \
    "[A-Za-z]{2,}$"
#define ZOD_DURATION                                                                               \
    "^P(?:(\\d+W)|(?!.*W)(?=\\d|T\\d)(\\d+Y)?(\\d+M)?(\\d+D)?(T(?=\\d)(\\d+H)?(\\d+M)?"            \
    "(\\d+([.,]\\d+)?S)?)?)$"

typedef struct string_format {
    const char *name, *regex;
    uint32_t shortest, longest; /* bounds on the length of what is written */
    const char *pattern;        /* that all of it matches; NULL: none is known */
} string_format;

static const string_format formats[BNET_SCHEMA_FORMATS] = {
    {"date", "^" DATE "$", 10, 10, ZOD_DAY "$"},
    {"time", "^" TIME "$", 9, 21, NULL},
    {"date-time", "^" DATE "T" TIME "$", 20, 32, ZOD_DAY ZOD_TIME(ZOD_OFFSET)},
    {"date-time", "^" DATE "T" UTC "$", 20, 27, ZOD_DAY ZOD_TIME("Z")},
    {"duration", "^" DURATION "$", 3, 32, ZOD_DURATION},
    {"uuid", "^" HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}$", 36, 36, NULL},
    {"email", "^" EMAIL "$", 6, 226, ZOD_EMAIL},
    {"hostname", "^" HOST "$", 1, 253, ZOD_HOST},
    {"ipv4", "^" IPV4 "$", 7, 15, NULL},
    {"ipv6", "^" IPV6 "$", 2, 39, NULL},
    {"uri", "^" URI "$", 8, 1980, NULL},
};

/* The format with this pattern beside it, which may be NULL; NULL: it is not among those above. */
static const string_format *format_of(const json_t *format, const json_t *pattern)
{
    const char *name = json_string_value(format), *text = json_string_value(pattern);
    for (size_t i = 0; name && i < BNET_COUNT(formats); i++) {
        const string_format *f = &formats[i];
        bool beside = text && f->pattern && strcmp(text, f->pattern) == 0;
        if (strcmp(name, f->name) == 0 && (!pattern || beside))
            return f;
    }
    return NULL;
}

/* The rule of a format, one for the whole schema, written around the rule that is being written. */
static uint32_t format_rule(bnet_schema *s, const string_format *f)
{
    uint32_t *rule = &s->formats[f - formats], current = s->p->current;
    if (*rule || !bnet_schema_ok(s))
        return *rule;
    size_t over = bnet_program_leap(s->p);
    *rule = bnet_rule_named(s->p, f->name);
    bnet_program_begin(s->p, *rule);
    bnet_regex_write(s, s->at, "format", (bnet_span){f->regex, strlen(f->regex)});
    bnet_program_end(s->p);
    bnet_program_land(s->p, over);
    s->p->current = current;
    return *rule;
}

static void write_format(bnet_schema *s, const json_t *format, const string_format *f,
                         const char *path, uint32_t min, uint32_t max)
{
    const char *name = json_string_value(format);
    char quoted[80];
    if (!f)
        bnet_schema_refuse(
            s, path, "format",
            "\"%s\" of a string is not supported; date, time, date-time, duration, uuid, email, "
            "hostname, ipv4, ipv6 and uri are",
            name ? bnet_quote(name, strlen(name), quoted, sizeof quoted) : "");
    else if (min > f->shortest || max < f->longest)
        bnet_schema_refuse(s, path, "format",
                           "it is not supported beside a bound on the length that strings of %u to "
                           "%u characters do not keep",
                           f->shortest, f->longest);
    else
        bnet_program_call(s->p, format_rule(s, f), 1, 1);
}

/* ---- strings ---- */

static void write_pattern(bnet_schema *s, const json_t *node, const char *path)
{
    const char *text = json_string_value(json_object_get(node, "pattern"));
    const json_t *format = json_object_get(node, "format");
    if (!text)
        bnet_schema_refuse(s, path, "pattern", "it must be a string");
    else if (format && !json_is_string(format))
        bnet_schema_refuse(s, path, "format", "it must be a string");
    else if (json_object_get(node, "minLength") || json_object_get(node, "maxLength"))
        bnet_schema_refuse(s, path, "pattern",
                           "it is not supported beside a bound on the length of the same string");
    else
        bnet_regex_write(s, path, "pattern", (bnet_span){text, strlen(text)});
}

/* Beside a pattern a format is a note, as JSON Schema has it. */
void bnet_schema_string(bnet_schema *s, const json_t *node, const char *path)
{
    const json_t *pattern = json_object_get(node, "pattern"),
                 *format = json_object_get(node, "format");
    uint32_t min = bnet_schema_count(s, node, path, "minLength", 0);
    uint32_t max = bnet_schema_count(s, node, path, "maxLength", BNET_GRAM_MANY);
    const string_format *f = format_of(format, pattern);
    if (pattern && !f)
        write_pattern(s, node, path);
    else if (format)
        write_format(s, format, f, path, min, max);
    else if (min > max)
        bnet_schema_refuse(s, path, "minLength", "it is more than \"maxLength\"");
    else {
        bnet_program_text(s->p, "\"", 1);
        bnet_program_call(s->p, s->json.character, min, max);
        bnet_program_text(s->p, "\"", 1);
    }
}
