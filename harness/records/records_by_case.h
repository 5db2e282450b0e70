// The last record of each case, of the records of a file in which a case may have several.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

// The last record of each case, in the order in which the cases first appear.
class RecordsByCase {
 public:
  RecordsByCase() = default;
  explicit RecordsByCase(std::vector<Record> lines);

  const std::vector<Record>& records() const { return records_; }
  // The records, after which this has none.
  std::vector<Record> take_records();
  // The record with this Record::key(), or null.
  const Record* find(const std::string& key) const;
  // Adds the record, or replaces the record of the same case.
  void put(Record record);

 private:
  std::vector<Record> records_;
  std::unordered_map<std::string, size_t> index_;  // of each record by its key
};

}  // namespace attnbench
