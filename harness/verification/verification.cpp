// Sends the cases of rows to workers, and goes on with the next method after a worker that ended too early.
#include "harness/verification/verification.h"

#include <utility>

#include "harness/sweep/case_runner.h"

namespace attnbench {
namespace {

class Verification {
 public:
  Verification(const WorkerProgram& worker, std::vector<VerifiedRow>& rows, const VerificationOptions& options,
               const VerificationProgress& progress)
      : worker_(worker), rows_(rows), options_(options), progress_(progress) {}

  void run() {
    while (row_ < rows_.size()) {
      auto request = Json::array();
      for (size_t i = row_; i < rows_.size() && (options_.one_worker || rows_[i].method == rows_[row_].method); ++i)
        for (size_t n = i == row_ ? rows_[i].records.size() : 0; n < rows_[i].cases.size(); ++n)
          request.push_back(to_json(rows_[i].cases[n]));
      progress_.begins(rows_[row_]);
      unanswered_ = request.size();
      const auto expected = unanswered_;
      const auto answer = run_worker(worker_, "verify", request, options_.deadline_s, [this](const Json& line) {
        if (unanswered_ > 0) take(line);
      });
      if (unanswered_ > 0) give_up(answer, expected);
    }
  }

 private:
  const Case& next_case() const { return rows_[row_].cases[rows_[row_].records.size()]; }

  void take(const Json& line) {
    Record record(next_case());
    take_line(record, line);
    add(std::move(record));
  }

  // Called if the worker ended before it answered everything. The case that it was verifying failed, and the later cases of the
  // same method are not tried.
  void give_up(const WorkerAnswer& answer, size_t expected) {
    const auto method = rows_[row_].method;
    const auto* const failure = failure_kind(answer);
    auto reason = fault_of(answer, expected);
    while (row_ < rows_.size() && rows_[row_].method == method) {
      Record record(next_case());
      record.set_failed(failure, reason);
      add(std::move(record));
      reason = "not verified, because the worker ended at an earlier case of the method";
    }
  }

  void add(Record record) {
    auto& row = rows_[row_];
    row.records.push_back(std::move(record));
    --unanswered_;
    if (!row.is_complete()) return;
    ++row_;
    if (row_ == rows_.size() || rows_[row_].method != row.method) progress_.has_ended(row.method);
    if (row_ < rows_.size()) progress_.begins(rows_[row_]);
  }

  const WorkerProgram& worker_;
  std::vector<VerifiedRow>& rows_;
  const VerificationOptions& options_;
  const VerificationProgress& progress_;
  size_t row_ = 0;         // index of the first row that is not complete
  size_t unanswered_ = 0;  // number of cases that the running worker has not answered
};

}  // namespace

void verify_rows(const WorkerProgram& worker, std::vector<VerifiedRow>& rows, const VerificationOptions& options,
                 const VerificationProgress& progress) {
  Verification(worker, rows, options, progress).run();
}

}  // namespace attnbench
