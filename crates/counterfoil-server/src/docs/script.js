// Comforts only: without this the page has all that it has to say.
for (const pre of document.querySelectorAll("pre")) {
  // Behind a proxy the server does not know its own address; the browser does.
  const code = pre.firstElementChild;
  code.textContent = code.textContent.replace(/'http:\/\/[^/']+\//, "'" + location.origin + "/");
  const box = document.createElement("div");
  box.className = "copied";
  pre.replaceWith(box);
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  box.append(pre, button);
}

const filter = document.getElementById("filter");
filter.parentElement.hidden = false;
filter.addEventListener("input", () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const item of document.querySelectorAll("nav li")) {
    const text = document.getElementById(item.dataset.for).textContent.toLowerCase();
    item.hidden = !words.every((word) => text.includes(word));
  }
});
