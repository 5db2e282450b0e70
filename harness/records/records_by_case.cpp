// Keeps the last record of each case, with an index of the records by their keys.
#include "harness/records/records_by_case.h"

#include <utility>

namespace attnbench {

RecordsByCase::RecordsByCase(std::vector<Record> lines) {
  records_.reserve(lines.size());
  for (auto& line : lines) put(std::move(line));
}

void RecordsByCase::put(Record record) {
  const auto [at, fresh] = index_.emplace(record.key(), records_.size());
  if (fresh) records_.push_back(std::move(record));
  else records_[at->second] = std::move(record);
}

std::vector<Record> RecordsByCase::take_records() {
  index_.clear();
  return std::exchange(records_, {});
}

const Record* RecordsByCase::find(const std::string& key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &records_[found->second];
}

}  // namespace attnbench
