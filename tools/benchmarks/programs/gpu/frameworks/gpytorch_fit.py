"""GPyTorch: an exact Gaussian process, fitted."""
import gpytorch
import report
import torch

x = torch.linspace(0, 1, 1000).cuda()
y = torch.sin(20 * x) + 0.1 * torch.cos(170 * x)


class Process(gpytorch.models.ExactGP):
    def __init__(self):
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood().cuda())
        self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.RBFKernel())

    def forward(self, at):
        return gpytorch.distributions.MultivariateNormal(self.mean(at), self.kernel(at))


model = Process().cuda()
goal = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
losses: list[float] = []


def step() -> None:
    loss = -goal(model(x), y)
    losses.append(report.learn(optimizer, loss))


report.timed("gpytorch: a step of the fit", step)
report.result("gpytorch: losses", losses, within=0.02)
