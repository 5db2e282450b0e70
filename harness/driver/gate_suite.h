// The cases of a gate with two builds to run them on: what gate_command.cpp measures, and what it says in the end.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/driver/gate.h"
#include "harness/protocol/record.h"

namespace attnbench {

// One build.
struct Side {
  std::string name;    // "base" or "candidate"
  std::string worker;  // its path
  double injected_slowdown_percent = 0;
  Record environment = {};
};

// "linear forward N=4096 causal": method, protocol and length, and whatever is not as by default.
std::string case_name(const Case& c);

struct SuiteCase {
  Case c;
  std::string name;
  std::string unusable = {};  // why there can be no verdict; empty when there can
  struct OfSide {
    std::vector<double> medians = {};           // of each process, milliseconds; or instructions
    std::vector<double> log_ratios = {};        // to the base, of the turns of each process: their median
    std::vector<double> peak_extra_bytes = {};  // of each process
    std::string implementation = {};
  };
  std::vector<OfSide> sides = {};  // the first is the base
};

// The median over turns of log(b/a), of the samples of two processes that took them in turns.
double median_log_ratio(const std::vector<double>& a, const std::vector<double>& b);

// Names of cases that may fail, with the reason.
using Waivers = std::map<std::string, std::string>;
// TOML: [[waive]] case = "linear forward N=4096" reason = "…". Throws UsageError with file and line for anything else, for a
// waiver without a reason, and for one of no case in `names`.
Waivers read_waivers(const std::string& path, const std::vector<std::string>& names);

enum class GateResult { pass = 0, regression = 1, unusable = 2, inconclusive = 3 };  // values are exit codes

struct GateReport {
  GateResult result = GateResult::pass;
  struct Line {
    std::string name, verdict, waived;  // the waiver's reason
    Judgement judgement;
    size_t processes = 0;
    bool memory_regression = false;
  };
  std::vector<Line> lines;
};
// A case's memory is a regression when each candidate's peak is more than `memory_shift` above every base's.
GateReport report_of(const std::vector<SuiteCase>& suite, const std::vector<Judgement>& judgements, const Waivers& waivers,
                     double memory_shift);

}  // namespace attnbench
