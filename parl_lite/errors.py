"""Every exception a user may meet. Knows nothing of the rest.

ParlError                      catch this one to catch all
├── NotConnectedError          connect() was not called, or disconnect() was
├── AuthenticationError        the cluster key is wrong or missing
├── VersionError               client, master and worker cannot work together
├── ResourceError              no slot now, or none ever
├── SerializationError         a value cannot travel
├── RemoteError                the actor's own code raised; also an instance of the original class where it can be imported
└── ActorLostError             the actor's process is gone
    └── OutOfMemoryError       ... because it used more memory than allowed
"""

from __future__ import annotations


class ParlError(Exception):
    """Base of all errors of parl_lite."""


class NotConnectedError(ParlError):
    """The process is not connected to a cluster, or the cluster cannot be reached."""


class AuthenticationError(ParlError):
    """The cluster refused the key, or a key is needed and none was given."""


class VersionError(ParlError):
    """Two sides run versions that cannot work together; the message names both."""


class ResourceError(ParlError):
    """The cluster has no room for the actor now (after waiting), or never can have."""


class SerializationError(ParlError):
    """A value cannot be encoded, or cannot be decoded where it arrived."""


class RemoteError(ParlError):
    """A method of an actor raised.

    Attributes:
        type_name: qualified name of the original exception class.
        remote_traceback: the traceback as text, as the actor printed it.
    """

    type_name: str = ""
    remote_traceback: str = ""
    _message: str | None = None
    _where: str = ""

    def __str__(self) -> str:
        """Return the original message, and below a rule line the remote traceback."""
        if self._message is None:
            return super().__str__()
        head = f"{self.type_name}: {self._message}"
        return f"{head}\n--- remote traceback ({self._where}) ---\n{self.remote_traceback}" if self.remote_traceback else head


class ActorLostError(ParlError):
    """The process of an actor ended, or its machine cannot be reached.

    Attributes:
        host: name of the machine.
        pid: process id of the actor there.
        exit_code: exit code, or None.
        signal: number of the signal that ended it, or None.
        log_path: the actor's log file on its machine.
    """

    host: str = ""
    pid: int = 0
    exit_code: int | None = None
    signal: int | None = None
    log_path: str = ""


class OutOfMemoryError(ActorLostError):
    """The actor used more memory than its `max_memory`, or the machine had none left."""
