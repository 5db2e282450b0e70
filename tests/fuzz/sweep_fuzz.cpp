// Fuzzes the reading of sweep files. For any text, SweepFile must give the cases or throw a UsageError.
#include "harness/sweep/sweep_file.h"
#include "harness/text/errors.h"
#include "tests/fuzz/in_memory_file.h"
#include "tests/support/test_catalogue.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto catalogue = attnbench::test_catalogue();
  const InMemoryFile file(data, size);
  try {
    const attnbench::SweepFile sweep(file.path(), catalogue);
    sweep.settings();
    sweep.cases();
  } catch (const attnbench::UsageError&) {
  }
  return 0;
}
