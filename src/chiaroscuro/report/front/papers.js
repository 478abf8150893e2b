// Where each panel's idea is from. Addresses are plain links: nothing is fetched.

const PAPERS = {
  calder2025: ["Calder and Lee 2025", "https://arxiv.org/abs/2503.10812"],
  cosentino2022: ["Cosentino et al. 2022", "https://arxiv.org/abs/2205.06926"],
  tan2024: ["Tan et al. 2024", "https://arxiv.org/abs/2303.15103"],
  rusak2022: ["Rusak et al. 2022", null],
  semantic2025: ["Anonymous 2025", "https://openreview.net/forum?id=6EadiKkfgR"],
  chen2020simclr: ["Chen et al. 2020", "https://arxiv.org/abs/2002.05709"],
  oord2018cpc: ["van den Oord et al. 2018", "https://arxiv.org/abs/1807.03748"],
  he2020moco: ["He et al. 2020", "https://arxiv.org/abs/1911.05722"],
  radford2021clip: ["Radford et al. 2021", "https://arxiv.org/abs/2103.00020"],
  fan2023laclip: ["Fan et al. 2023", "https://arxiv.org/abs/2305.20088"],
  khosla2020supcon: ["Khosla et al. 2020", null],
  bardes2022vicreg: ["Bardes et al. 2022", "https://arxiv.org/abs/2105.04906"],
  grill2020byol: ["Grill et al. 2020", "https://arxiv.org/abs/2006.07733"],
  zbontar2021barlow: ["Zbontar et al. 2021", "https://arxiv.org/abs/2103.03230"],
  haochen2021spectral: ["HaoChen et al. 2021", null],
  wang2020alignuniform: ["Wang and Isola 2020", "https://arxiv.org/abs/2005.10242"],
  jing2022directclr: ["Jing et al. 2022", "https://arxiv.org/abs/2110.09348"],
  yeh2022dcl: ["Yeh et al. 2022", "https://arxiv.org/abs/2110.06848"],
  zimmermann2021clica: ["Zimmermann et al. 2021", "https://arxiv.org/abs/2102.08850"],
  gao2021gradcache: ["Gao et al. 2021", "https://arxiv.org/abs/2101.06983"],
  cheng2024infcl: ["Cheng et al. 2024", "https://arxiv.org/abs/2410.17243"],
  ioffe2015batchnorm: ["Ioffe and Szegedy 2015", "https://arxiv.org/abs/1502.03167"],
  you2017lars: ["You et al. 2017", "https://arxiv.org/abs/1708.03888"],
  loshchilov2019adamw: ["Loshchilov and Hutter 2019", "https://arxiv.org/abs/1711.05101"],
  wu2018instance: ["Wu et al. 2018", "https://arxiv.org/abs/1805.01978"],
  roy2007rank: ["Roy and Vetterli 2007", null],
  luxburg2007: ["von Luxburg 2007", "https://arxiv.org/abs/0711.0189"],
  ng2001: ["Ng et al. 2001", null],
  shi2000: ["Shi and Malik 2000", "https://doi.org/10.1109/34.868688"],
  arthur2007: ["Arthur and Vassilvitskii 2007", null],
  vanassel2022: ["Van Assel et al. 2022", "https://arxiv.org/abs/2201.13053"],
  jacot2018: ["Jacot et al. 2018", "https://arxiv.org/abs/1806.07572"],
  novak2022: ["Novak et al. 2022", "https://arxiv.org/abs/2206.08720"],
  radovanovic2010hubs: ["Radovanović et al. 2010", null],
  agrawal2022alpha: ["Agrawal et al. 2022", null],
  stringer2019: ["Stringer et al. 2019", null],
  golub1979gcv: ["Golub et al. 1979", null],
  hubert1985ari: ["Hubert and Arabie 1985", null],
  strehl2002nmi: ["Strehl and Ghosh 2002", null],
  cortes2012alignment: ["Cortes et al. 2012", null],
  bjorck1973angles: ["Björck and Golub 1973", null],
  politis1999subsampling: ["Politis et al. 1999", null],
  maaten2008tsne: ["van der Maaten and Hinton 2008", null],
  kusupati2022: ["Kusupati et al. 2022", "https://arxiv.org/abs/2205.13147"],
  northcutt2021confident: ["Northcutt et al. 2021", "https://arxiv.org/abs/1911.00068"],
  breunig2000lof: ["Breunig et al. 2000", null],
  gretton2012mmd: ["Gretton et al. 2012", null],
  wang2021temperature: ["Wang and Liu 2021", null],
};

export function paperLink(key, el) {
  const known = Object.hasOwn(PAPERS, key ?? "") ? PAPERS[key] : null;
  const address = known ? known[1] : /^https:\/\/[^\s]+$/.test(key ?? "") ? key : null;
  if (!address) return key ? el("span.paper", {}, known ? known[0] : key) : null;
  return el("a.paper", { href: address, rel: "noreferrer noopener", target: "_blank" }, known ? known[0] : key);
}
