// Starts what the pages need beside Dash. Everything works by attributes of elements, so that a page that is
// replaced needs no cleaning up.
import { startCharts } from "./modules/charts.mjs";
import { startChoices } from "./modules/choices.mjs";
import { startCopying } from "./modules/copying.mjs";
import { startDialogs } from "./modules/dialogs.mjs";
import { startFigures } from "./modules/figures.mjs";
import { startFlows } from "./modules/flow/flow_view.mjs";
import { startForms } from "./modules/forms.mjs";
import { startLive } from "./modules/live.mjs";
import { startNavigation } from "./modules/navigation.mjs";
import { startPalette } from "./modules/palette.mjs";
import { startShows } from "./modules/shows.mjs";
import { startTargets } from "./modules/targets.mjs";
import { startTimelines } from "./modules/timeline/timeline_view.mjs";
import { startUploads } from "./modules/upload_view.mjs";
import { startViewKeys } from "./modules/view_keys.mjs";

startNavigation();
startFigures();
startFlows();
startCharts();
startChoices();
startCopying();
startDialogs();
startForms();
startLive();
startPalette();
startShows();
startTargets();
startTimelines();
startUploads();
startViewKeys();
