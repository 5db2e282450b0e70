// Sweep files: what to measure, as data (TOML).
//
//   description = "…"
//   plugins = ["build/libmine.so"]  # libraries with further methods (attn/plugin.h); paths from the folder of the sweep file
//   [axes]                          # names as in `attnbench list columns`; a list makes one case for each value
//   method = ["softmax", "linear-chunked:chunk=256"]
//   query_len = "512-65536*2"       # a range: 512, 1024, … 65536; "16-64+16" adds instead of multiplying
//   shape = "gpt-oss"               # the axes of a released model (`attnbench list shapes`) that this table does not set itself
//   batch = "16384/query_len"       # a ratio: 16384 divided by query_len, at least 1
//                                   # [[axes]], several times: the cases of each of these tables
//   [limits]
//   memory_limit_bytes = "11 GiB"   # by default the memory that is available
//   deadline_s = 120                # max wall time of a case, in seconds
//   [timing]                        # time_budget_s, warmup_s, min_samples, noise_target, processes, baseline, max_disturbance
//   [published]
//   file = "published/figure1.csv"  # path from the folder of the sweep file; see published.h
//
// Axes and settings have the names that fields() declares.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/records/published.h"
#include "harness/schema/json.h"
#include "harness/sweep/catalogue.h"
#include "harness/text/errors.h"

namespace attnbench {

// Values from the command line that replace values of a sweep file.
struct SweepOverrides {
  std::vector<std::string> methods;                           // replace the file's methods, unless empty
  std::vector<std::pair<std::string, std::string>> settings;  // from --set: names of axes or settings, each with its value
  std::string like = {};                                      // for Catalogue::with_like()

  // Adds "key=value", as given to --set. Throws UsageError for text of another form.
  void add_setting(const std::string& text);
};

// The paths of the plug-ins that this sweep file names, as it writes them. Throws UsageError with the place in the file for a
// value that is no list of paths.
std::vector<std::string> plugins_of(const std::string& path);

// The worker with the plug-ins that this sweep file names besides its own. Throws UsageError with the place in the file for one
// that does not exist.
WorkerProgram with_plugins_of(const std::string& path, WorkerProgram worker);

// The keys that a sweep file may have, in the order of the sections above:
// [{"key", "table", "type", "unit", "default", "choices", "description"}, …]. `table` is empty for a key before the first table.
// `default` is null where there is none, or where it depends on other keys or on the machine.
Json sweep_keys();

class SweepFile {
 public:
  static constexpr size_t kMaxCases = 100'000;

  // Throws UsageError for anything that is malformed or unknown. The message says where it is ("file:line:column: …", or the
  // option that it comes from) and names the known key that is nearest to an unknown one.
  SweepFile(const std::string& path, const Catalogue& catalogue, const SweepOverrides& overrides = {});

  const std::string& stem() const { return stem_; }
  const std::string& description() const { return description_; }
  const Published& published() const { return published_; }

  // The cases of every combination of the axes' values, with defaults filled in and without duplicates. The axes that fields()
  // declares last vary fastest. Throws UsageError if there are too many.
  std::vector<Case> cases() const;

  // Returns where the sweep sets this axis of the case: "file:line:column", or the option. Returns empty text if the sweep does
  // not set it.
  std::string origin_of(const Case& c, const std::string& axis) const;

  // The settings before defaults that depend on the machine are filled in, without the baseline. Two runs with equal settings and
  // baselines were configured alike.
  Json settings() const;
  // The baseline of each table of axes.
  std::vector<std::string> baselines() const;

 private:
  struct Ratio {
    int64_t numerator;
    const Field* denominator;
  };
  struct Axis {
    const Field* field;
    std::vector<Json> values;
    std::vector<std::string> origins;  // where each value comes from: "file:line:column" or the option
    std::optional<Ratio> ratio;        // in place of the values
  };
  // A table [axes], or one of several tables [[axes]].
  struct Block {
    std::vector<Axis> axes;
    std::optional<std::string> baseline;  // in place of that of [timing]
  };
  friend class SweepParser;

  std::vector<Case> cases_of(const Block& block) const;
  UsageError too_many_cases() const;

  std::string stem_, description_;
  std::vector<Block> blocks_;
  Case settings_;
  Published published_;
};

}  // namespace attnbench
