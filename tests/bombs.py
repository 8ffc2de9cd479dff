"""What runs code when it is unpickled."""

import os


class Bomb:
    """Makes the folder `mark`, which must not be there afterwards."""

    def __init__(self, mark: object) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.mark,)
