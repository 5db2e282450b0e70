// Fuzzes the reading of records.jsonl. For any bytes, read_records() must throw a UsageError or return records. These must stay
// the same when they are written and read again, and it must be possible to print and to analyse them.
#include "harness/analysis/analysis.h"
#include "harness/cli/rendering/record_table.h"
#include "harness/records/record_folders.h"
#include "harness/records/records_csv.h"
#include "harness/text/errors.h"
#include "tests/fuzz/in_memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace attnbench;
  const InMemoryFile file(data, size);
  try {
    const auto records = read_records(file.path());
    for (const auto& record : records) {
      const auto text = record.to_json().dump(-1, ' ', false, Json::error_handler_t::replace);
      if (Record::parse(Json::parse(text)).to_json().dump(-1, ' ', false, Json::error_handler_t::replace) != text) std::abort();
    }
    records_csv(records);
    summary_table(records).render();
    analyse(records, Json::array(), {1e9}).to_json();
  } catch (const UsageError&) {
  }
  return 0;
}
