// Sweep files: what to measure, as data (TOML).
//
//   description = "…"
//   [axes]                          # names and values as in `attnbench list columns`; a list makes one case a value
//   method = ["softmax", "linear:chunk=256"]
//   query_len = "512-65536*2"       # a range: 512, 1024, … 65536; "16-64+16" adds instead
//   batch = "16384/query_len"       # proportional to 1/N, at least 1
//   [limits]
//   memory = "11 GiB"               # by default what the machine has
//   seconds = 120                   # of wall time, a case
//   [timing]                        # warmup, min_samples, noise_target, seconds
//   [published]
//   file = "published/figure1.csv"  # beside the sweep file; see published.h
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/sweep/catalogue.h"
#include "harness/records/published.h"

namespace attnbench {

// The axes of a case, by which sweep files, options and tables of others name them.
std::vector<std::string> axis_names();

struct SweepOverrides {
  std::vector<std::string> methods;                           // instead of the file's, when not empty
  std::vector<std::pair<std::string, std::string>> settings;  // --set: axis or "limits.memory", and its value

  // "key=value" as given to --set. Throws UsageError.
  void add_setting(const std::string& text);
};

class SweepFile {
 public:
  // Throws UsageError "file:line:column: …" for anything malformed or unknown, naming the nearest known key.
  SweepFile(const std::string& path, const Catalogue& catalogue, const SweepOverrides& overrides = {});

  const std::string& stem() const { return stem_; }
  const std::string& description() const { return description_; }
  const Published& published() const { return published_; }

  // Every combination of the axes, completed, each once, the last-declared axes varying fastest.
  std::vector<Case> cases() const;

  // Limits and timing as written, for telling whether two runs were set up alike.
  Json settings() const;

 private:
  struct Ratio {
    int64_t numerator;
    const Field* denominator;
  };
  struct Axis {
    const Field* field;
    std::vector<Json> values;
    std::optional<Ratio> ratio;  // instead of values
  };
  friend class SweepParser;

  std::string stem_, description_;
  std::vector<Axis> axes_;
  Case settings_;
  Published published_;
};

}  // namespace attnbench
