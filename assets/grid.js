// Cells of the tables. A plain script: AG Grid looks its functions up in `window` before any module has run.
(function () {
  "use strict";
  const components = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});

  components.MycroftCell = function (props) {
    const field = props.colDef.field;
    const row = props.data || {};
    const make = window.React.createElement;
    if (props.value === null || props.value === undefined) {
      return make("span", { className: "cell-unknown", title: "not in the evidence" }, "–");
    }
    const text = props.shown ? String(row[props.shown]) : typeof props.value === "number" && !row[`${field}_plain`] ? props.value.toLocaleString("en-US") : String(props.value);
    const kind = row[`${field}_kind`];
    const shown = kind ? make("span", { className: `tag tag--${kind}` }, text) : text;
    const href = row[`${field}_href`];
    return typeof href === "string" && href.startsWith("/") ? make("a", { href }, shown) : make("span", null, shown);
  };
})();
