/* ask_tools.c - which tools an answer may call, and which it must. */
#include <stdio.h>
#include <string.h>

#include "ask/ask_impl.h"
#include "ask/fields.h"

#define MAX_TOOLS 1024
#define MAX_NAME  128

/* ---- the list ---- */

static const char *tool_name(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

static const char *type_of(const json_t *value)
{
    return json_string_value(json_object_get(value, "type"));
}

/* Kinds of tools that are not known are left out: clients send those of other servers. */
static bool is_function(const json_t *tool)
{
    return !type_of(tool) || strcmp(type_of(tool), "function") == 0;
}

static bool check_function(srv_exchange *x, const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    const json_t *parameters = json_object_get(function, "parameters");
    const char *name = tool_name(tool);
    if (!name || !*name || strlen(name) > MAX_NAME)
        return srv_field_wrong(x, "tools", "functions with a name of 1 to 128 bytes");
    if (parameters && !json_is_object(parameters) && !json_is_null(parameters))
        return srv_field_wrong(x, "tools", "functions whose parameters are a JSON schema");
    return true;
}

static bool read_list(srv_exchange *x, const srv_ask *a, srv_tool_plan *plan)
{
    size_t i;
    json_t *tool;
    if (!a->tools || json_is_null(a->tools))
        return true;
    if (!json_is_array(a->tools) || json_array_size(a->tools) > MAX_TOOLS)
        return srv_field_wrong(x, "tools", "a list of at most 1024 tools");
    json_t *list = json_array();
    bool good = true;
    json_array_foreach(a->tools, i, tool)
    {
        if (good && !json_is_object(tool))
            good = srv_field_wrong(x, "tools", "a list of objects");
        if (good && is_function(tool))
            good = check_function(x, tool) && json_array_append(list, tool) == 0;
    }
    if (good && json_array_size(list))
        plan->tools = list;
    else
        json_decref(list);
    return good;
}

/* ---- the choice ---- */

static json_t *tool_named(const json_t *tools, const char *name)
{
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool)
    {
        if (strcmp(tool_name(tool), name) == 0)
            return tool;
    }
    return NULL;
}

/* {"type": "function", "function": {"name": ...}}, or with the name beside the type. */
static const char *choice_name(const json_t *choice)
{
    const char *name = tool_name(choice);
    return name ? name : json_string_value(json_object_get(choice, "name"));
}

static bool refuse_name(srv_exchange *x, const char *name)
{
    srv_fail(x, 400, "invalid_value", "tool_choice",
             "tool_choice names \"%.64s\", which is not among the functions in tools",
             name ? name : "");
    return false;
}

static bool force_one(srv_exchange *x, const char *name, srv_tool_plan *plan)
{
    json_t *tool = tool_named(plan->tools, name);
    if (!tool)
        return refuse_name(x, name);
    plan->choice = tool_name(tool);
    plan->forced = json_pack("[O]", tool);
    return plan->forced || srv_no_room(x);
}

static bool force_any(srv_exchange *x, srv_tool_plan *plan)
{
    if (!plan->tools)
        return srv_field_wrong(x, "tool_choice",
                               "\"none\" or \"auto\" where tools has no function");
    plan->forced = json_copy(plan->tools);
    return plan->forced || srv_no_room(x);
}

static void use_none(srv_tool_plan *plan)
{
    json_decref(plan->tools);
    plan->tools = NULL;
}

/* {"type": "allowed_tools", "mode": "auto" or "required", "tools": [...]}, or with these two under
 * "allowed_tools": no other tool is there. */
static bool allow_some(srv_exchange *x, const json_t *choice, srv_tool_plan *plan)
{
    size_t i;
    json_t *one, *inner = json_object_get(choice, "allowed_tools"), *list = json_array();
    const json_t *from = inner ? inner : choice, *named = json_object_get(from, "tools");
    const char *mode = json_string_value(json_object_get(from, "mode"));
    bool must = mode && strcmp(mode, "required") == 0, good = list != NULL;
    if (!json_is_array(named) || !mode || (!must && strcmp(mode, "auto") != 0)) {
        json_decref(list);
        return srv_field_wrong(
            x, "tool_choice",
            "allowed_tools with a list tools and a mode \"auto\" or \"required\"");
    }
    json_array_foreach(named, i, one)
    {
        json_t *tool = choice_name(one) ? tool_named(plan->tools, choice_name(one)) : NULL;
        if (!tool && is_function(one))
            good = good && refuse_name(x, choice_name(one));
        else if (tool)
            good = good && (json_array_append(list, tool) == 0 || srv_no_room(x));
    }
    use_none(plan);
    plan->tools = good && json_array_size(list) ? list : NULL;
    if (!plan->tools)
        json_decref(list);
    return good && (!must || force_any(x, plan));
}

bool srv_tool_plan_read(srv_exchange *x, const srv_ask *a, srv_tool_plan *plan)
{
    *plan = (srv_tool_plan){0};
    const json_t *choice = a->tool_choice;
    const char *word = json_string_value(choice), *name = choice_name(choice);
    if (!read_list(x, a, plan))
        return false;
    if (!choice || json_is_null(choice) || (word && strcmp(word, "auto") == 0))
        return true;
    if (word && strcmp(word, "none") == 0) {
        use_none(plan);
        return true;
    }
    if (word && (strcmp(word, "required") == 0 || strcmp(word, "any") == 0))
        return force_any(x, plan);
    if (type_of(choice) && strcmp(type_of(choice), "allowed_tools") == 0)
        return allow_some(x, choice, plan);
    if (json_is_object(choice) && name)
        return force_one(x, name, plan);
    return srv_field_wrong(x, "tool_choice",
                           "\"none\", \"auto\", \"required\", an object that names a function, or "
                           "allowed_tools");
}

void srv_tool_plan_free(srv_tool_plan *plan)
{
    json_decref(plan->tools);
    json_decref(plan->forced);
    *plan = (srv_tool_plan){0};
}

/* ---- a call that must be ---- */

const char *srv_tool_opening(srv_tool_style style)
{
    return style == SRV_TOOLS_HERMES    ? "<tool_call>\n"
           : style == SRV_TOOLS_MISTRAL ? "[TOOL_CALLS]["
                                        : "";
}

static bool is_among(const char *word, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

/* "#" and "#/..." name places of the tool's own schema, which stands at `base` of the whole one. */
static bool move_reference(json_t *schema, const char *base)
{
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    if (!ref || ref[0] != '#' || (ref[1] && ref[1] != '/'))
        return true;
    return json_object_set_new(schema, "$ref", json_sprintf("%s%s", base, ref + 1)) == 0;
}

/* Moves the references of a schema and of all schemas in it: under "properties" and its like every
 * member is one, and values that are only compared have none. Nests as deep as the body, which is
 * limited. False: out of memory. */
static bool move_references(json_t *node, const char *base, bool names)
{
    static const char *const lists[] = {"properties", "patternProperties", "$defs", "definitions",
                                        "dependentSchemas"};
    static const char *const values[] = {"const", "enum", "default", "examples"};
    const char *key;
    json_t *value;
    size_t i;
    bool good = names || !json_is_object(node) || move_reference(node, base);
    json_array_foreach(node, i, value)
    {
        good = good && move_references(value, base, false);
    }
    json_object_foreach(node, key, value)
    {
        bool compared = !names && is_among(key, values, sizeof values / sizeof *values);
        bool inner = !names && is_among(key, lists, sizeof lists / sizeof *lists);
        good = good && (compared || move_references(value, base, inner));
    }
    return good;
}

/* The schema of a call of the tool, which is number `index` of all. */
static json_t *call_schema(const json_t *tool, const char *key, size_t index)
{
    char base[64];
    const json_t *parameters = json_object_get(json_object_get(tool, "function"), "parameters");
    json_t *schema = json_is_object(parameters) && json_object_size(parameters)
                         ? json_deep_copy(parameters)
                         : json_pack("{s:s}", "type", "object");
    snprintf(base, sizeof base, "#/anyOf/%zu/properties/%s", index, key);
    json_object_del(schema, "$id"); /* of the tool's own schema, which is no longer at a root */
    if (!move_references(schema, base, false)) {
        json_decref(schema);
        return NULL;
    }
    return json_pack("{s:s, s:{s:{s:s}, s:o}, s:[ss], s:b}", "type", "object", "properties", "name",
                     "const", tool_name(tool), key, schema, "required", "name", key,
                     "additionalProperties", 0);
}

json_t *srv_tool_schema(const srv_tool_plan *plan, srv_tool_style style)
{
    size_t i;
    json_t *tool, *all = json_array(), *root = json_pack("{s:O}", "anyOf", all);
    const char *key = style == SRV_TOOLS_LLAMA3 ? "parameters" : "arguments";
    json_array_foreach(plan->forced, i, tool)
    {
        if (json_array_append_new(all, call_schema(tool, key, i))) {
            json_decref(root);
            root = NULL;
            break;
        }
    }
    json_decref(all);
    return root;
}
