// Turns let several workers run at the same time and take their samples one after another, so that something that slows the
// machine down for a while slows all of them down alike. The workers form a ring of pipes in which one byte circulates. The
// worker that reads the byte has the turn, and passes it on by writing the byte to the next worker. When a worker ends, for
// whatever reason, its pipes close, and the turns of the others end as well.
#pragma once

namespace attnbench {

class Turns {
 public:
  // Takes the file descriptors that the byte is read from and written to; the destructor closes them. If `processor` is not
  // negative, the first await() binds the calling thread to that processor.
  Turns(int from_previous, int to_next, int processor);
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Waits for this worker's turn. The first turn begins only when every worker waits for one. Returns false if the turns have
  // ended. Throws std::runtime_error if the thread cannot be bound to the processor.
  bool await();
  // Passes the turn on to the next worker.
  void pass();

 private:
  bool read_byte();
  int from_previous_, to_next_, processor_;
  bool begun_ = false, ended_ = false;
};

}  // namespace attnbench
