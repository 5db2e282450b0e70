// Fuzzes the reading of settings files of experiments. For any text, SettingsFile must give the items or throw a UsageError.
#include "harness/experiments/settings_file.h"
#include "harness/text/errors.h"
#include "tests/fuzz/in_memory_file.h"
#include "tests/support/test_catalogue.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto catalogue = attnbench::test_catalogue();
  const InMemoryFile file(data, size);
  try {
    attnbench::TrainingFile(file.path(), catalogue).items();
  } catch (const attnbench::UsageError&) {
  }
  try {
    attnbench::GenerationFile(file.path(), catalogue).items();
  } catch (const attnbench::UsageError&) {
  }
  return 0;
}
