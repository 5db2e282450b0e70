// The schema as data: which axes and columns records have. It is written beside records as schema.json, so that a program that
// reads records, such as the plots, needs no list of its own.
#pragma once

#include "harness/schema/record.h"

namespace attnbench {

// What the file is called in a folder of records.
inline constexpr auto kSchemaFile = "schema.json";

// The columns as `list columns` shows them: every column of an ordinary record, then every diagnostic, as in `schema_json`.
Json columns_json(const Json& diagnostics);

// {"schema_version": 4,
//  "axes": [{"name", "type", "unit", "description", "choices", "default", "kind", "compared", "follows", "before"}, …],
//  "columns": [{"name", "type", "unit", "group", "description"}, …],
//  "diagnostics": [{"name", "unit", "description", "methods"}, …],
//  "former_names": {"gpu_clock_least_mhz": "gpu_clock_min_mhz", "lsh_bucket_mean": "diagnostics.lsh_bucket_mean", …}}
//
// Axes are in the order of their columns. `default` is null where the value must be given, follows another axis or depends on
// the machine; `before` is the value that records from before the axis existed were measured with, null where every record has
// the axis. `diagnostics` are those that methods declare, as Catalogue::diagnostics() lists them.
Json schema_json(const Json& diagnostics);

}  // namespace attnbench
