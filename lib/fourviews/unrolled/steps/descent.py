"""What is said of a step: did the theory promise a fall, and did the energy fall?"""

from __future__ import annotations

import abc

from torch import Tensor

__all__ = ["Descent"]


class Descent(abc.ABC):
    """A step with an energy before and after it, what rounding may hide, and a promise or none."""

    before: Tensor
    after: Tensor
    rounding: Tensor

    @property
    @abc.abstractmethod
    def guaranteed(self) -> Tensor:
        """Whether the theory forbids a rise."""

    @property
    def fell(self) -> Tensor:
        """Whether the energy did not rise beyond rounding."""
        return self.after <= self.before + self.rounding

    def status(self) -> list[str]:
        """``guaranteed``, ``observed`` (fell without a guarantee) or ``broken``, each leading index."""
        pairs = zip(
            self.guaranteed.reshape(-1).tolist(), self.fell.reshape(-1).tolist(), strict=True
        )
        return ["guaranteed" if sure else "observed" if fell else "broken" for sure, fell in pairs]
