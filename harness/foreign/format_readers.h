// The readers of the formats, and what they hand over their benchmarks to.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/foreign/foreign_run.h"
#include "harness/schema/json.h"

namespace attnbench {

// Collects the benchmarks of one file.
class ForeignCollector {
 public:
  ForeignCollector(ForeignFormat format, const ForeignMeasure& measure, std::string where);

  const ForeignMeasure& measure() const { return run_.measure; }
  // Adds a value in the file's unit to the benchmark of this name; several values of one benchmark are its repetitions.
  void add(const std::string& name, const Json& value, double factor = 1);
  // The benchmark failed.
  void add_fault(const std::string& name, const std::string& fault);
  // The benchmark does not have the measure, but others.
  void leave_out(const std::string& name);
  void set_machine(std::string machine) { run_.machine = std::move(machine); }
  // Throws UsageError that names the file.
  [[noreturn]] void fail(const std::string& message) const;

  // The member of an object. Throws UsageError that names `of` if it is missing or not of the type that `holds` tells.
  const Json& object_in(const Json& json, const char* name, const std::string& of) const;
  const Json& list_in(const Json& json, const char* name, const std::string& of) const;
  std::string text_in(const Json& json, const char* name, const std::string& of) const;
  // Takes each item of a list for an object. Throws UsageError if one is none.
  const Json& checked_object(const Json& item, const std::string& of) const;

  ForeignRun take();

 private:
  size_t index_of(const std::string& name);

  ForeignRun run_;
  std::string where_;
  std::map<std::string, size_t, std::less<>> indices_;
  std::vector<std::vector<double>> values_;  // of each result
};

// The name between quotes, for messages, shortened and safe to show.
std::string quoted_name(const std::string& name);
// The text of a member, or `otherwise` where there is no such text.
std::string text_or(const Json& json, const char* name, const std::string& otherwise = "");

void read_google_benchmark(const Json& file, ForeignCollector& collector);
void read_pytest_benchmark(const Json& file, ForeignCollector& collector);
void read_hyperfine(const Json& file, ForeignCollector& collector);
void read_asv_result(const Json& file, ForeignCollector& collector);
void read_bencher_metrics(const Json& file, ForeignCollector& collector);
void read_nvbench(const Json& file, ForeignCollector& collector);

}  // namespace attnbench
