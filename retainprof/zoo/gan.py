"""A generative adversarial network."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["Gan"]


class Gan(nn.Module):
    """Fakes are made and judged in one forward.

    Inputs noise (batch, noise) and real examples (batch, data). Outputs are the discriminator's logits: ``real``, ``fake``
    for its own loss and ``fooled`` for the generator's. With ``detach`` they are two runs over the fakes, and the first
    one does not reach the generator.
    """

    def __init__(self, noise: int, data: int, hidden: int, detach: bool) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(noise, hidden), nn.ReLU(), nn.Linear(hidden, data))
        self.discriminator = nn.Sequential(nn.Linear(data, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 1))
        self.detach = detach

    def forward(self, noise: Tensor, real: Tensor) -> dict[str, Tensor]:
        made = self.generator(noise)
        fooled = self.discriminator(made)
        fake = self.discriminator(made.detach()) if self.detach else fooled
        return {"real": self.discriminator(real), "fake": fake, "fooled": fooled}
