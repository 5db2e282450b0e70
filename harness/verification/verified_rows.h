// The rules of `attnbench verify`: which cases of a method are verified, and when they count as verified.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

// The cases of one method, dtype, mask and kind of key lengths, and the records of those that were verified so far.
struct VerifiedRow {
  std::string method, dtype;
  bool causal;
  std::string key_lengths;
  std::vector<Case> cases = {};
  std::vector<Record> records = {};

  bool is_complete() const { return records.size() == cases.size(); }
  // The largest error that counts, over the records of a protocol. Negative if none has one.
  double max_error(const char* protocol) const;
  bool failed() const;
  bool unsupported() const;
  bool unverified() const;
  // The axes of the first case that failed; null if none did.
  Json failed_case() const;
  std::string verdict() const;
};

// The rows of these methods, those of one method together.
std::vector<VerifiedRow> rows_to_verify(const std::vector<std::string>& methods, const std::string& device, bool quick);
// What the rows that are verified quickly leave out, as a sentence.
inline constexpr auto kLeftOutOfQuick =
    "--quick left out float64, bfloat16, sequences of 300 positions, and inputs with means, scales and outliers";

// How many rows have each result.
struct RowCounts {
  size_t agree = 0, unsupported = 0, unverified = 0, failed = 0;

  void add(const VerifiedRow& row) {
    ++(row.failed() ? failed : row.unsupported() ? unsupported : row.unverified() ? unverified : agree);
  }
};

}  // namespace attnbench
