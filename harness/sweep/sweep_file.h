// Sweep files: what to measure, as data (TOML).
//
//   description = "…"
//   [axes]                          # names and values as in `attnbench list columns`; a list makes one case a value
//   method = ["softmax", "linear:chunk=256"]
//   query_len = "512-65536*2"       # a range: 512, 1024, … 65536; "16-64+16" adds instead of multiplying
//   batch = "16384/query_len"       # a ratio: proportional to 1/N, at least 1
//   [limits]
//   memory_limit_bytes = "11 GiB"   # by default the memory that is available
//   deadline_s = 120                # wall time of a case
//   [timing]                        # time_budget_s, warmup_s, min_samples, noise_target, processes
//   [published]
//   file = "published/figure1.csv"  # beside the sweep file; see published.h
//
// A setting has its name from fields(). Sweep files written before that had names of their own for some (limits.memory,
// limits.seconds, timing.seconds, …), which can still be read.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/records/published.h"
#include "harness/sweep/catalogue.h"

namespace attnbench {

struct SweepOverrides {
  std::vector<std::string> methods;                           // instead of the file's methods, unless it is empty
  std::vector<std::pair<std::string, std::string>> settings;  // --set: name of an axis or a setting, and its value

  // "key=value" as given to --set. Throws UsageError.
  void add_setting(const std::string& text);
};

class SweepFile {
 public:
  // Throws UsageError "file:line:column: …" for whatever is malformed or unknown, naming the nearest known key.
  SweepFile(const std::string& path, const Catalogue& catalogue, const SweepOverrides& overrides = {});

  const std::string& stem() const { return stem_; }
  const std::string& description() const { return description_; }
  const Published& published() const { return published_; }

  // Every combination of the axes, completed and without duplicates. The axes that fields() declares last vary fastest.
  std::vector<Case> cases() const;

  // The settings as written, which tell whether two runs were configured alike.
  Json settings() const;

 private:
  struct Ratio {
    int64_t numerator;
    const Field* denominator;
  };
  struct Axis {
    const Field* field;
    std::vector<Json> values;
    std::optional<Ratio> ratio;  // in place of the values
  };
  friend class SweepParser;

  std::string stem_, description_;
  std::vector<Axis> axes_;
  Case settings_;
  Published published_;
};

}  // namespace attnbench
