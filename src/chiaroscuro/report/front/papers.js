// Where each panel's idea is from. Addresses are plain links: nothing is fetched.

const PAPERS = {
  wang2020alignuniform: ["Wang and Isola 2020", "https://arxiv.org/abs/2005.10242"],
  jing2022directclr: ["Jing et al. 2022", "https://arxiv.org/abs/2110.09348"],
  roy2007rank: ["Roy and Vetterli 2007", null],
  tan2024: ["Tan et al. 2024", "https://arxiv.org/abs/2303.15103"],
  chen2020simclr: ["Chen et al. 2020", "https://arxiv.org/abs/2002.05709"],
  cosentino2022: ["Cosentino et al. 2022", "https://arxiv.org/abs/2205.06926"],
  calder2025: ["Calder and Lee 2025", "https://arxiv.org/abs/2503.10812"],
  rusak2022: ["Rusak et al. 2022", null],
  semantic2025: ["Contrastive Learners Are Semantic Learners", "https://openreview.net/forum?id=6EadiKkfgR"],
  oord2018cpc: ["van den Oord et al. 2018", "https://arxiv.org/abs/1807.03748"],
  khosla2020supcon: ["Khosla et al. 2020", "https://arxiv.org/abs/2004.11362"],
  haochen2021spectral: ["HaoChen et al. 2021", "https://arxiv.org/abs/2106.04156"],
  zimmermann2021clica: ["Zimmermann et al. 2021", "https://arxiv.org/abs/2102.08850"],
};

export function paperLink(key, el) {
  const known = PAPERS[key];
  const address = known ? known[1] : /^https:\/\/[^\s]+$/.test(key ?? "") ? key : null;
  if (!address) return key ? el("span.paper", {}, known ? known[0] : key) : null;
  return el("a.paper", { href: address, rel: "noreferrer noopener", target: "_blank" }, known ? known[0] : key);
}
