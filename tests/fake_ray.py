"""A stand-in for the package ray, in this process: tasks are threads, and nodes are what a test says."""

import threading
import types
from concurrent.futures import CancelledError, Future


class RayError(Exception):
    pass


class RayTaskError(RayError):
    """As Ray's own: what a task raised, wrapped."""

    def __init__(self, cause):
        super().__init__(f"a traceback of many lines\n{cause}")
        self.cause = cause


class TaskCancelledError(RayError):
    pass


class FakeRay(types.ModuleType):
    """What the library asks of ray, and a record of it."""

    exceptions = types.SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, *nodes):
        super().__init__("ray")
        self.resources, self.joined, self.options, self.cancelled = nodes, [], [], []
        self.up = self.most = 0

    def init(self, address, **options):
        if address == "nowhere:1":
            raise ConnectionError("no answer")
        self.joined.append((address, options))
        self.up += 1

    def shutdown(self):
        self.up -= 1

    def nodes(self):
        return [{"Alive": True, "Resources": node} for node in self.resources]

    def remote(self, *, retry_exceptions, **options):
        self.options.append(options)

        def task(function):
            def begin(*given):
                future, tries = Future(), options["max_retries"] + 1
                self.most = max(self.most, sum(not f.done() for f in self._begun) + 1)
                self._begun.append(future)
                threading.Thread(
                    target=self._run, args=(future, function, given, tries, retry_exceptions)
                ).start()
                return future

            return types.SimpleNamespace(remote=begin)

        self._begun = []
        return task

    def _run(self, future, function, given, tries, again):
        for left in reversed(range(tries)):
            try:
                answer = function(*given)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the one who asked is told
                if left and isinstance(error, tuple(again)):
                    continue
                answer = RayTaskError(error)
            if not future.cancelled():
                future.set_result(answer)
            return

    def get(self, future):
        try:
            answer = future.result()
        except CancelledError:
            raise TaskCancelledError("the task was cancelled") from None
        if isinstance(answer, RayError):
            raise answer
        return answer

    def cancel(self, future):
        self.cancelled.append(future)
        future.cancel()

    def wait(self, futures, **options):
        return futures, []
