// The axes and columns of records as data. They are written beside the records as schema.json, so that a program that reads
// records, such as the plotting scripts, needs no list of its own.
#pragma once

#include "harness/schema/record.h"

namespace attnbench {

// The name of the file in a result folder.
inline constexpr auto kSchemaFile = "schema.json";

// The columns as `attnbench list columns` shows them: those of columns(), then every diagnostic, each as an object with the
// members that schema_json() documents. `diagnostics` as for schema_json().
Json columns_json(const Json& diagnostics);

// The default of a field. Null where the value must be given, follows another field or depends on the machine.
Json default_json(const Field& field);

// {"schema_version": 9,
//  "axes": [{"name", "type", "unit", "description", "choices", "default", "kind", "compared", "follows", "before"}, …],
//  "columns": [{"name", "type", "unit", "group", "description"}, …],
//  "training": {"axes": ["task", "method", …], "columns": [{"name", "type", "unit", "group", "description"}, …]},
//  "diagnostics": [{"name", "unit", "description", "methods"}, …],
//  "former_options": [{"method", "former", "current"}, …]}
//
// Axes are in the order of their columns. `default` is null where the value must be given, follows another axis or depends on
// the machine. `before` is the value that cases were measured with before the axis existed, and null where every record has the
// axis. `training` describes the points of curves.jsonl (training_columns()): two points with equal axes belong to the same
// training. `diagnostics` are those that methods declare, as Catalogue::diagnostics() lists them.
// `former_options` are those of attn/former_options.h.
Json schema_json(const Json& diagnostics);

}  // namespace attnbench
