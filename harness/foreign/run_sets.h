// Several runs of a benchmark program on one side of a comparison.
#pragma once

#include <string>
#include <vector>

#include "harness/foreign/foreign_run.h"

namespace attnbench {

// What the runs of one side say. A run is a file, whatever number of repetitions it holds.
struct RunSet {
  std::string path;
  ForeignFormat format = ForeignFormat::google_benchmark;
  ForeignMeasure measure;
  std::vector<std::string> machines;  // each once
  size_t runs = 0;
  // By the order of the first run, with one value for each run that has one.
  struct Benchmark {
    std::string name;
    std::vector<double> values;
    std::string fault;  // of the first run in which it failed; empty if it never did
  };
  std::vector<Benchmark> benchmarks;
};

// Whether the path is a file, or a folder whose only files are JSON, so that read_run_set() is to read it.
bool is_run_set(const std::string& path);
// Reads a file, or all files *.json of a folder, ordered by their names. Throws UsageError as read_foreign_file() does, and for
// files of different formats and a folder without such files.
RunSet read_run_set(const std::string& path, const std::string& measure = "");

}  // namespace attnbench
