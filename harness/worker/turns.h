// Several workers that run side by side and take their samples in turns, so that whatever slows the machine down for a while
// slows all of them down alike. A byte goes round in a ring of pipes: the worker that reads it has the turn, and writes it to the
// next. Where a worker ends, for whatever reason, its pipes close, and the turns of the others are over as well.
#pragma once

namespace attnbench {

class Turns {
 public:
  // The file descriptors that the byte is read from and written to; the destructor closes them. If `processor` is not negative,
  // the thread that awaits the first turn stays on that processor from then on.
  Turns(int from_previous, int to_next, int processor);
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Waits for the turn, and for the first one until every worker awaits its first. Returns false when there are no more turns.
  // Throws std::runtime_error when the thread cannot stay on the processor.
  bool await();
  // Passes the turn to the next worker.
  void pass();

 private:
  bool read_byte();
  int from_previous_, to_next_, processor_;
  bool begun_ = false, ended_ = false;
};

}  // namespace attnbench
