/* cli.h - what the files of the command share. The command sees the library through its
 * public headers alone (cmd_convert.c also through convert.h); the environment, the terminal and
 * exit codes live here and nowhere below.
 *
 * Functions named int xxx(...) return an exit code of exit_codes.inc, 0 for success, and have
 * already told the reason on standard error. */
#ifndef BITNET_CLI_H
#define BITNET_CLI_H

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bitnet.h"
#include "bitnet_check.h"
#include "bitnet_tools.h"
#include "options.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

/* ---- exit codes ---- */

enum {
#define EXIT_CODE(name, code, text) EXIT_##name = code,
#include "exit_codes.inc"
#undef EXIT_CODE
};

int fail(int code, const char *fmt, ...)
    BITNET_PRINTF(2, 3); /* "bitnet: ..." on stderr; returns code */
void warn(const char *fmt, ...) BITNET_PRINTF(1, 2);
/* Prints the message, unless a signal cancelled the work; returns the exit code of the status. */
int fail_with(const bitnet_error *err);
/* The library's message with its fields named as the flags that set them, in out; the message as it
 * is where out is too small. */
const char *in_flags(const char *message, char *out, size_t cap);
int outcome(bitnet_status status, const bitnet_error *err); /* EXIT_OK, or as fail_with */

/* ---- memory: the command cannot continue without it, so these end the program with EXIT_MEMORY
 * ---- */

void *xmalloc(size_t n);
void *xrealloc(void *p, size_t n);
char *xstrdup(const char *s);
char *xmemdup(const char *s, size_t n); /* n bytes and a NUL */
char *xformat(const char *fmt, ...) BITNET_PRINTF(1, 2);

/* A growing byte string, always NUL-terminated once anything was added. Zero-initialise;
 * free(s.data). */
typedef struct buffer {
    char *data;
    size_t n, cap;
} buffer;

void text_add(buffer *t, const char *bytes, size_t n);
void text_puts(buffer *t, const char *s);
void text_printf(buffer *t, const char *fmt, ...) BITNET_PRINTF(2, 3);
/* Each character of s that is in `from` becomes the text at its place in `to`. */
void text_mapped(buffer *t, const char *s, const char *from, const char *const *to);
/* Text from a file, a model or a name: what could command a terminal or turn the direction of its
 * text (C0, DEL, C1, bidirectional controls) and bytes of no character as \xNN or \uNNNN. lines:
 * newlines and tabs stay. */
void text_visible(buffer *t, const char *bytes, size_t n, bool lines);
char *visible(const char *s);             /* the same on one line; to be freed */
bool is_control(const char *s, size_t k); /* the character of k bytes, as utf8_length found it */
/* Makes room for n more bytes and returns where they go; the caller fills them and raises t->n. */
char *text_room(buffer *t, size_t n);
void free_buffer(buffer *t); /* and empties it */

/* ---- help ---- */

int print_help(const command *c, bool all); /* c NULL: of the program; all: every option */
int print_completions(const char *shell);
size_t first_sentence(const char *help); /* its length */

/* ---- standard output: every write is checked, a closed or full one is remembered ---- */

/* Unbuffered to the reader; to a terminal as text_visible writes it, else every byte as it is.
 * False: closed, full. */
bool out_write(const char *bytes, size_t n);
bool out_command(const char *bytes); /* our own words to the terminal */
bool out_puts(const char *s);
bool out_printf(const char *fmt, ...) BITNET_PRINTF(1, 2);
bool out_buffer(buffer *t); /* and frees it */
bool out_failed(void);
bool wants_to_stop(void *unused); /* a signal came, or standard output is closed */
int out_finish(int code); /* the exit code after a last check; says "disk full" where that is so */
void out_guard_descriptors(void);
void note(const args *a, const char *fmt, ...) BITNET_PRINTF(2, 3); /* to stderr unless --quiet */
bool tty_stderr(void);

/* ---- files ---- */

/* Appears at `path` whole or not at all. A target that is no regular file (a pipe, /dev/stdout) is
 * written directly. */
typedef struct outfile {
    FILE *file;
    char *path, *temp; /* temp NULL: writing directly */
} outfile;

int outfile_open(outfile *f, const char *path);
bool outfile_write(outfile *f, const void *bytes, size_t n); /* false: failed; _commit then tells */
int outfile_commit(outfile *f);
void outfile_abort(outfile *f);
int save_bytes(const char *path, const char *bytes, size_t n);
bool same_file(const char *a, const char *b);  /* both exist and are one, by whatever names */
int read_input(const char *path, buffer *out); /* "-": standard input */
/* Behind the mark of UTF-8 that some editors put first; NULL: there is no text. */
static inline char *after_bom(char *text)
{
    return text && strncmp(text, "\xef\xbb\xbf", 3) == 0 ? text + 3 : text;
}

/* Tries a file to be written, without making anything: folder, permission, no directory. */
int output_try(const char *origin, const char *path);
int outputs_try(const args *a);                      /* all that the options name */
int check_outputs(const args *a, const char *model); /* none of them is the model */

/* The raw text of a command: --option, --file, arguments, or standard input if that is no terminal.
 * Exactly one of them may be given. *found false: none was. */
int read_text(const args *a, option_key literal, option_key file, buffer *out, bool *found,
              bool *from_file);
void unescape(buffer *t);
char *unescaped(const args *a, const char *text); /* a copy, unescaped where --escapes is on */

/* ---- JSON ---- */

json_t *j_text(const char *bytes, size_t n); /* invalid UTF-8 becomes U+FFFD */
json_t *j_str(const char *s);                /* NULL becomes null */
json_t *j_num(double x);                     /* NaN and infinities become null */
json_t *j_ids(const int32_t *ids, size_t n);
/* Prints the object as one line on stdout if --json, and to --json-out where that is given. Takes
 * the reference. */
int j_report(const args *a, json_t *object);
bool j_print(json_t *object); /* takes the reference */
int j_save(json_t *object, const char *path);
/* An object of the values that follow, as `names` lists them: "path:t n_layers:i". After the colon:
 * t text (const char *, as j_str), i int, n a 64-bit count, f double (as j_num), b bool, j a
 * json_t * whose reference is taken. */
json_t *j_object(const char *names, ...);
void j_add(json_t *object, const char *names, ...);   /* the same, into an object there is */
size_t utf8_length(const unsigned char *s, size_t n); /* of the character at s; 0: not valid */

/* ---- signals ---- */

void signals_install(void);
void signals_handle(int sig, void (*fn)(int), int flags);                /* flags of sigaction */
void signals_handle_unless_ignored(int sig, void (*fn)(int), int flags); /* as under nohup */
/* What SIGBUS is blamed on: the path (copied), until an engine says which of its files it was. */
void signals_name_model(const char *path);
void signals_watch_engine(const bitnet_engine *engine);
void signals_forget_engine(const bitnet_engine *engine); /* before it is closed */
void signals_name_temp(
    const char *path); /* removed if a signal ends the program; NULL: none; copied */
int interrupted(void); /* 0, or the exit code the signal asks for */
void interrupt_clear(void);
/* Signals that ask to end, to stop or to redraw: threads started while they are held never get
 * them. */
void signals_hold(bool hold);
void tell_stderr(const char *bytes, size_t n); /* all of it, in a handler too */
bool input_wait(void); /* until standard input can be read; false: a signal asked to stop */

/* ---- the library, opened as the options say ---- */

typedef struct loaded {
    const args *args;
    char *path;
    bitnet_runtime *runtime;
    bitnet_bridge *bridge; /* serves the runtime; or NULL */
    bitnet_engine *engine;
    bitnet_session *session; /* opened by load_session */
    const bitnet_model_info *info;
    double load_ms;
    double deadline_ms; /* 0: none */
    bool timed_out;
    char cache[4096]; /* folder of packed weights */
} loaded;

/* What --cache says. "on": $XDG_CACHE_HOME/bitnet, or ~/.cache/bitnet; NULL: nothing is kept. */
const char *cache_folder(const char *want, char *buf, size_t cap);
/* No packed weights are in the folder (NULL: there is none): the next ones are the first. */
bool cache_is_empty(const char *folder);
/* One line that says what is there now, if anything is: where, how large, how to be rid of it. */
void cache_tell_first(const args *a, const char *folder);
int load_engine(loaded *m, const args *a, bool vocab_only);
int load_session(loaded *m);
void load_close(loaded *m);
void deadline_start(loaded *m); /* from now, --timeout */
/* As outcome, but says so where --timeout cancelled. */
int loaded_outcome(const loaded *m, bitnet_status status, const bitnet_error *err);
int model_path(const args *a, char **out); /* *out is to be freed also on failure */
const char *file_name(const char *path);   /* without its folder */
double now_ms(void);
const char *wanted_isa(const args *a);                        /* NULL: the best there is */
void engine_options(const args *a, bitnet_engine_options *o); /* those that load and bench share */
bitnet_kv_type cache_type(const args *a);                     /* of --kv */
json_t *devices_json(const bitnet_devices_options *o); /* as `devices --json`; NULL: not known */
/* What the options say of the runtime; --self-test may lower its instruction set. */
int runtime_options(const args *a, int n_threads, bitnet_runtime_options *o);
/* The runtime alone, as the options say. */
int open_runtime(const args *a, int n_threads, bitnet_runtime **out);
/* What --bridge names, serving the runtime, which must be closed first; *out NULL: nothing. */
int serve_bridge(const args *a, bitnet_runtime *runtime, bitnet_bridge **out);

/* ---- progress: one line on a terminal that says how far long work has come ---- */

typedef enum progress_unit { UNIT_NONE, UNIT_BYTES, UNIT_TOKENS, UNIT_SHARE } progress_unit;

/* Decides once whether anything is shown: not without a terminal, with --quiet, or where lines of
 * the log are JSON. */
void progress_allow(const args *a);

/* Work begins; it is shown from --progress-delay on until _end. One at a time: a second one ends
 * the first. */
void progress_begin(progress_unit unit, const char *what, ...) BITNET_PRINTF(2, 3);
/* A bitnet_progress_fn. total 0: not known; done is then a count. False once the user wants to
 * stop. */
bool progress_step(void *user, uint64_t done, uint64_t total);
/* Words behind the percentage: "3 of 12 texts". */
void progress_detail(const char *fmt, ...) BITNET_PRINTF(1, 2);
void progress_end(void);

/* Around everything written to the terminal: the line is wiped, and not drawn before _resume. open:
 * what was written does not end a line, which nothing may be drawn over. */
void progress_pause(void);
void progress_resume(bool open);
/* For signal handlers that end the program. */
void progress_wipe(void);

/* ---- receipts and statistics (receipts.c) ---- */

/* *out NULL: no receipt is wanted. */
int receipt_begin(const loaded *m, bitnet_receipt **out);
/* Does the option have a part in what the command makes? Not the text of a prompt, which has a
 * digest, and nothing that names a file. */
bool receipt_records(const option *o, command_key c);
/* Adds the command and its options to the facts and writes them to --receipt. */
int receipt_save(const args *a, bitnet_receipt *receipt, bitnet_receipt_facts *facts);
/* Makes the run of the receipt again, with its options and the prompt that is given, and compares
 * the digests: EXIT_RECEIPT and `why` if they differ; then nothing was told yet
 * (receipt_replay.c). */
int receipt_replay(const args *a, const char *path, char *why, size_t cap);
json_t *engine_stats_json(const loaded *m);
void engine_stats_text(const loaded *m, buffer *out);

/* ---- log (log.c) ---- */

/* From now on fail, warn and note speak in JSON lines too. */
void log_as_json(bool on);
/* A line of the command itself, as a JSON object; false: lines are text, or there is no memory.
 * code < 0: none. */
bool log_own_line(bitnet_log_level level, int code, const char *fmt, va_list ap);
/* Any thread; user: the args. */
void log_sink(void *user, bitnet_log_level level, const char *module, const char *message);
/* Fails unless the levels are like "info" or "device=debug,gguf=info"; warns of a module that does
 * not exist. */
int log_levels_check(const char *origin, const char *levels);

/* ---- ids and generation ---- */

typedef struct id_list {
    int32_t *data;
    size_t n, cap;
} id_list;

void ids_push(id_list *v, int32_t id);
int tokenize_text(const loaded *m, const char *bytes, size_t n, unsigned flags, id_list *out);
unsigned text_flags(const args *a); /* of --bos and --special */
int detokenize(const loaded *m, const int32_t *v, size_t n, unsigned flags, buffer *out);
int render_chat(const loaded *m, const char *template_name, const bitnet_message *messages,
                size_t n, buffer *out);
/* The form that --template names. auto: the one chosen for the file, or raw; a warning says where
 * that is not what the file's own template would write. Fails for unknown names. */
int choose_template(const loaded *m, const char *wanted, const char **name);

uint64_t choose_seed(const args *a);
int open_sampler(const loaded *m, uint64_t seed, bitnet_sampler **out);

/* ---- form.c: --grammar and --json-schema ---- */

/* Without one of the options all of this does nothing and says yes. */
typedef struct text_form {
    const loaded *m;
    bitnet_grammar *grammar; /* NULL: the text has any form */
    bitnet_matcher *matcher; /* of the text being made */
    bitnet_sampler *sampler; /* that is held to it */
    bool failed;
    bitnet_error err;
} text_form;

int form_open(const loaded *m, text_form *f);
void form_close(text_form *f);
/* A text begins behind this prompt. */
int form_begin(text_form *f, bitnet_sampler *sampler, const id_list *prompt);
/* The token was chosen; false: nothing may follow it, and _outcome tells why. */
bool form_follow(text_form *f, int32_t id);
int form_outcome(const text_form *f);
/* The text ended before its form did. */
bool form_is_cut(const text_form *f);
/* Fills options from the arguments; *stops (freed by the caller with free_stops) holds unescaped
 * copies. */
typedef struct stop_list {
    char **data;
    size_t n;
} stop_list;

int generate_options(const loaded *m, bitnet_generate_options *o, stop_list *stops);
void stop_list_add(stop_list *s, const char *text);
void stop_list_free(stop_list *s);
double per_second(size_t n, double ms);
const char *grouped(uint64_t n, char *buf, size_t cap);     /* "1,312" */
const char *rate_text(double per_s, char *buf, size_t cap); /* "1,312", "48.3", "6.71" */
/* What a word gets behind this count: 1 token, 2 tokens. */
static inline const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}
void kernels_text(const loaded *m, buffer *out);
json_t *kernels_json(const loaded *m);
json_t *j_piece(const loaded *m, int32_t id); /* the text of one token */
/* The ids that were told, made those of the result: a cancelled generation may tell its last token
 * twice, a stopped one not at all. */
void settle_ids(id_list *ids, const bitnet_generate_result *r);

/* ---- a reply as programs read it (--json, --format jsonl) ---- */

typedef struct top_token {
    int32_t id;
    float logit;
} top_token;

/* Best n of the logits into top (ties to the lower id). */
void top_tokens(const float *logits, int n_vocab, top_token *top, size_t n);

/* One reply on its way: what was told of it so far. */
typedef struct reply_events {
    const loaded *m;
    bool trims;      /* it begins after a template: white space before its text is not shown */
    bool begun;      /* text was shown */
    size_t position; /* of the token told last */
    json_t *steps;   /* --json --logprobs: an entry for every token; NULL: none wanted */
} reply_events;

/* --logprobs asks for numbers that only JSON can hold. */
int events_check(const args *a);
void events_begin(reply_events *e, const loaded *m, bool trims);
/* What of a piece is text of the reply: cuts its beginning off *bytes and *n. */
void events_trim(reply_events *e, const char **bytes, size_t *n);
/* A token was chosen; the piece is trimmed already. With --format jsonl its event is printed.
 * False: standard output is closed. */
bool events_token(reply_events *e, const char *bytes, size_t n, int32_t id);
/* Puts the log-probabilities into the object of the reply (NULL: there is none), if --json is to
 * have them, and forgets them. */
void events_finish(reply_events *e, json_t *reply);
/* "eos", "stop", "length", "cancelled" or "timeout". */
const char *finish_word(bitnet_finish finish, const loaded *m);

/* ---- the commands ---- */

#define COMMAND(key, function, ...) int function(args *a);
#include "commands.inc"

#endif
